"""A thread that reads the places of processes.

The kernel may hold a reader of /proc/PID/environ for as long as the process is stuck in a page fault. The pipeline must
not wait for that.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from otel_zernel.runtime.threads import WorkerThread
from otel_zernel_processors.kubernetes.places.processes import ProcessKey, ProcessPlace, ProcessPlaces

_AT_ONCE: Final = 256
"""Processes that are read before a batch goes on, which takes 0.1 s. Others are read before the next batches."""
_HANGS: Final = 5.0
"""Seconds after which a reading counts as stuck."""


class PlaceReader:
    """Reads in a thread of its own, and hands over what it has read, also what came too late for its batch."""

    def __init__(self, places: ProcessPlaces) -> None:
        self._places = places
        self._thread: WorkerThread | None = None
        self._began = 0.0
        self._found: deque[tuple[ProcessKey, ProcessPlace | None]] = deque()

    @property
    def hangs(self) -> bool:
        """Whether the thread has been stuck for a while."""
        return self._is_busy and time.monotonic() - self._began > _HANGS

    @property
    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.busy

    async def read(self, keys: Sequence[ProcessKey]) -> bool:
        """Reads some of the processes. Returns at once, with False, while the thread is busy."""
        self.take()
        if self._is_busy:
            return False
        if keys:
            self._thread = self._thread or WorkerThread("kubernetes")
            self._began = time.monotonic()
            await self._thread.call(lambda: self._read(keys[:_AT_ONCE]))
            self.take()
        return True

    def take(self) -> None:
        """Remembers what the thread has read."""
        while self._found:
            self._places.remember(*self._found.popleft())

    def close(self) -> None:
        """Ends the thread. Does not wait for it."""
        if self._thread:
            self._thread.close()
            self._thread = None

    def _read(self, keys: Sequence[ProcessKey]) -> None:
        for key in keys:
            self._found.append((key, self._places.read(key)))
