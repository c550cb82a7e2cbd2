"""XIDs: errors that the driver reports as events, counted by code.

https://docs.nvidia.com/deploy/xid-errors/ lists the codes.
"""

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from otel_zernel_receivers.nvml.driver.kernel_log import LoggedXid
from otel_zernel_receivers.nvml.driver.library import GpuLost, Handle, NvmlLibrary, NvmlUnavailable

WAIT_MS = 200
"""How long the thread waits for events before it checks whether it was stopped."""


NO_INSTANCE = 0xFFFFFFFF
"""nvmlEventData_t's id for "no GPU instance". On boards without MIG the id may also be 0."""


class Xid(NamedTuple):
    """An error's code, and the MIG GPU instance if the error concerns only one."""

    code: int
    gpu_instance: int | None = None


@dataclass(slots=True)
class XidCount:
    """The number of events with one XID, and the time of the last (ns since 1970)."""

    count: int = 0
    last_ns: int = 0


class XidCounts:
    """The XIDs of each GPU, by uuid. One thread writes, others read."""

    def __init__(self, time_ns: Callable[[], int]) -> None:
        self._time_ns = time_ns
        self._lock = threading.Lock()
        self._counts: defaultdict[str, dict[Xid, XidCount]] = defaultdict(dict)

    def add(self, uuid: str, xid: Xid) -> None:
        """Counts one event."""
        with self._lock:
            counted = self._counts[uuid].setdefault(xid, XidCount())
            counted.count += 1
            counted.last_ns = self._time_ns()

    def add_logged(self, uuid: str, xids: Iterable[LoggedXid]) -> None:
        """Counts errors from before the start."""
        with self._lock:
            for code, time_ns in xids:
                counted = self._counts[uuid].setdefault(Xid(code), XidCount())
                counted.count += 1
                counted.last_ns = max(counted.last_ns, time_ns)

    def of_gpu(self, uuid: str) -> dict[Xid, tuple[int, int]]:
        """Count and last time (ns since 1970) of each XID that the GPU reported."""
        with self._lock:
            return {xid: (counted.count, counted.last_ns) for xid, counted in self._counts[uuid].items()}


class XidListener:
    """A thread that waits for the XIDs of all subscribed GPUs until it is stopped or NVML fails."""

    def __init__(self, library: NvmlLibrary, on_xid: Callable[[str, Xid], None]) -> None:
        """Blocks. `on_xid` is called in the thread, with the GPU's uuid and the XID. Raises `NvmlUnavailable`."""
        self._library = library
        self._on_xid = on_xid
        self._uuids: dict[int | None, str] = {}
        """By the address of the device handle."""
        self._with_mig: set[str] = set()
        """The uuids of the GPUs that have MIG instances."""
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.failed = False
        """Whether NVML has ended the thread with an error."""
        self._events = self._call("nvmlEventSetCreate")

    def subscribe(self, uuid: str, device: Handle, *, with_mig: bool = False) -> None:
        """Listens to the GPU as well, if it reports XIDs. Blocks; called in the GPU's own thread.

        `with_mig`: the GPU has MIG instances, so that an XID may name one.
        """
        nvml = self._library.nvml
        (self._with_mig.add if with_mig else self._with_mig.discard)(uuid)
        supported = self._call("nvmlDeviceGetSupportedEventTypes", device)
        if self._events is None or not supported or not supported & nvml.nvmlEventTypeXidCriticalError:
            return
        self._uuids[_address(device)] = uuid
        self._call("nvmlDeviceRegisterEvents", device, nvml.nvmlEventTypeXidCriticalError, self._events)
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._listen, name="nvml events", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Asks the thread to end, which takes up to `WAIT_MS`."""
        self._stopped.set()

    def close(self, timeout: float) -> bool:
        """Frees the event set. Returns False, and frees nothing, if the thread is still running after `timeout` s."""
        with self._lock:
            thread = self._thread
        if thread:
            thread.join(timeout)
            if thread.is_alive():
                return False
        if self._events is not None:
            with suppress(NvmlUnavailable):
                self._call("nvmlEventSetFree", self._events)
            self._events = None
        return True

    def _call(self, function: str, *arguments: Any) -> Any:
        """NVML's answer; None if the call fails. A board without events is no failure. Raises `NvmlUnavailable`."""
        try:
            return getattr(self._library.nvml, function)(*arguments)
        except self._library.nvml.NVMLError as error:
            with suppress(GpuLost):  # the GPU's next scrape reports it
                self._library.record_error(function, error.value)
            return None

    def _listen(self) -> None:
        nvml = self._library.nvml
        while not self._stopped.is_set():
            try:
                event = nvml.nvmlEventSetWait(self._events, WAIT_MS)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_TIMEOUT:
                    self.failed = True
                    return
                continue
            uuid = self._uuids.get(_address(event.device))
            if uuid and event.eventType == nvml.nvmlEventTypeXidCriticalError:
                self._on_xid(uuid, Xid(event.eventData, self._gpu_instance(uuid, event.gpuInstanceId)))

    def _gpu_instance(self, uuid: str, id_: int) -> int | None:
        return id_ if uuid in self._with_mig and id_ != NO_INSTANCE else None


def _address(device: Handle) -> int | None:
    return ctypes.cast(device, ctypes.c_void_p).value
