"""XIDs: the errors that the driver reports as events, counted by code."""

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from otel_zernel_receivers.nvml.driver.library import Handle, Library, Lost, Unavailable

WAIT_MS = 200
"""The longest the thread is deaf to being stopped."""


NO_INSTANCE = 0xFFFFFFFF
"""The id of an event that is no GPU instance's, as nvmlEventData_t has it; where there is no MIG, it may be 0."""


class Xid(NamedTuple):
    """An error's code, and the MIG GPU instance it struck, if one alone."""

    code: int
    gpu_instance: int | None = None


@dataclass(slots=True)
class Seen:
    """How often an error came, and when last (ns since 1970)."""

    count: int = 0
    last_ns: int = 0


class Xids:
    """The XIDs of each GPU, by its uuid. Written by one thread and read by others."""

    def __init__(self, time_ns: Callable[[], int]) -> None:
        self._time_ns = time_ns
        self._lock = threading.Lock()
        self._seen: defaultdict[str, dict[Xid, Seen]] = defaultdict(dict)

    def count(self, uuid: str, xid: Xid) -> None:
        """Counts one."""
        with self._lock:
            seen = self._seen[uuid].setdefault(xid, Seen())
            seen.count += 1
            seen.last_ns = self._time_ns()

    def of(self, uuid: str) -> dict[Xid, tuple[int, int]]:
        """Count and time of each error that the GPU reported."""
        with self._lock:
            return {xid: (seen.count, seen.last_ns) for xid, seen in self._seen[uuid].items()}


class Listener:
    """A thread that waits for the XIDs of all GPUs until it is stopped, or NVML ends it."""

    def __init__(self, library: Library, heard: Callable[[str, Xid], None]) -> None:
        """Blocks. `heard` is told of uuids and their errors, in the thread. Raises `Unavailable`."""
        self._library = library
        self._uuids: dict[int | None, str] = {}
        self._divided: set[str] = set()
        """Those with MIG instances."""
        self._heard = heard
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.broken = False
        """Whether it ended by itself."""
        self._events = self._asked("nvmlEventSetCreate")

    def watch(self, uuid: str, device: Handle, *, divided: bool = False) -> None:
        """Listens to the GPU, too, if it reports XIDs; those of a GPU that is divided into MIG instances may be one's.
        Blocks; called in the GPU's own thread."""
        nvml = self._library.nvml
        (self._divided.add if divided else self._divided.discard)(uuid)
        supported = self._asked("nvmlDeviceGetSupportedEventTypes", device)
        if self._events is None or not supported or not supported & nvml.nvmlEventTypeXidCriticalError:
            return
        self._uuids[_address(device)] = uuid
        self._asked("nvmlDeviceRegisterEvents", device, nvml.nvmlEventTypeXidCriticalError, self._events)
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._listen, name="nvml events", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Ends soon; see `close`."""
        self._stopped.set()

    def close(self, timeout: float) -> bool:
        """Frees what it has of NVML, if the thread ended within `timeout` s."""
        with self._lock:
            thread = self._thread
        if thread:
            thread.join(timeout)
            if thread.is_alive():
                return False
        if self._events is not None:
            with suppress(Unavailable):
                self._asked("nvmlEventSetFree", self._events)
            self._events = None
        return True

    def _asked(self, function: str, *arguments: Any) -> Any:
        """What NVML says; None if it fails. Boards without events are no failure. Raises `Unavailable`."""
        try:
            return getattr(self._library.nvml, function)(*arguments)
        except self._library.nvml.NVMLError as error:
            with suppress(Lost):  # its scrapes tell
                self._library.unsupported(function, error.value)
            return None

    def _listen(self) -> None:
        nvml = self._library.nvml
        while not self._stopped.is_set():
            try:
                event = nvml.nvmlEventSetWait(self._events, WAIT_MS)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_TIMEOUT:
                    self.broken = True
                    return
                continue
            uuid = self._uuids.get(_address(event.device))
            if uuid and event.eventType == nvml.nvmlEventTypeXidCriticalError:
                self._heard(uuid, Xid(event.eventData, self._instance(uuid, event.gpuInstanceId)))

    def _instance(self, uuid: str, told: int) -> int | None:
        return told if uuid in self._divided and told != NO_INSTANCE else None


def _address(device: Handle) -> int | None:
    return ctypes.cast(device, ctypes.c_void_p).value
