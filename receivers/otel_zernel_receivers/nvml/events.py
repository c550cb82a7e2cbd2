"""XIDs: the errors that the driver reports as events, counted by code."""

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from otel_zernel_receivers.nvml.library import Handle, Library

WAIT_MS = 200
"""The longest the thread is deaf to being stopped."""


@dataclass(slots=True)
class Xid:
    """How often a code came, and when last (ns since 1970)."""

    count: int = 0
    last_ns: int = 0


class Xids:
    """The XIDs of each GPU, by its uuid. Written by one thread and read by others."""

    def __init__(self, time_ns: Callable[[], int]) -> None:
        self._time_ns = time_ns
        self._lock = threading.Lock()
        self._seen: defaultdict[str, dict[int, Xid]] = defaultdict(dict)

    def count(self, uuid: str, code: int) -> None:
        """Counts one."""
        with self._lock:
            xid = self._seen[uuid].setdefault(code, Xid())
            xid.count += 1
            xid.last_ns = self._time_ns()

    def of(self, uuid: str) -> dict[int, tuple[int, int]]:
        """Count and time of each code that the GPU reported."""
        with self._lock:
            return {code: (xid.count, xid.last_ns) for code, xid in self._seen[uuid].items()}


class Listener:
    """A thread that waits for XIDs of the given devices until it is stopped, or NVML ends it."""

    def __init__(self, library: Library, devices: Mapping[str, Handle], heard: Callable[[str, int], None]) -> None:
        """`heard` is told uuid and code, in the thread."""
        self._library = library
        self._devices = devices
        self._uuids = {_address(device): uuid for uuid, device in devices.items()}
        self._heard = heard
        self._stopped = threading.Event()
        self.broken = False
        """Whether it ended by itself, though there were devices to listen to."""
        self._thread = threading.Thread(target=self._listen, name="nvml events", daemon=True)

    def start(self) -> None:
        """Begins to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Ends soon; see `join`."""
        self._stopped.set()

    def join(self, timeout: float) -> bool:
        """Whether the thread ended within `timeout` s."""
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _listen(self) -> None:
        nvml = self._library.nvml
        try:
            events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return
        try:
            if self._register(events):
                self._wait(events)
        finally:
            nvml.nvmlEventSetFree(events)

    def _register(self, events: object) -> bool:
        """Whether any device reports XIDs."""
        nvml, found = self._library.nvml, False
        for device in self._devices.values():
            try:
                if nvml.nvmlDeviceGetSupportedEventTypes(device) & nvml.nvmlEventTypeXidCriticalError:
                    nvml.nvmlDeviceRegisterEvents(device, nvml.nvmlEventTypeXidCriticalError, events)
                    found = True
            except nvml.NVMLError:  # boards without events
                continue
        return found

    def _wait(self, events: object) -> None:
        nvml = self._library.nvml
        while not self._stopped.is_set():
            try:
                event = nvml.nvmlEventSetWait(events, WAIT_MS)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_TIMEOUT:
                    self.broken = True
                    return
                continue
            uuid = self._uuids.get(_address(event.device))
            if uuid and event.eventType == nvml.nvmlEventTypeXidCriticalError:
                self._heard(uuid, event.eventData)


def _address(device: Handle) -> int | None:
    return ctypes.cast(device, ctypes.c_void_p).value
