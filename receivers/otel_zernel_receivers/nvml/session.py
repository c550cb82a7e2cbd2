"""The sessions with the driver: opened, and closed when no thread is inside the driver."""

import asyncio
from collections.abc import Callable
from functools import partial

from otel_zernel.runtime.threads import WorkerThread
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.driver.events import XidListener
from otel_zernel_receivers.nvml.driver.library import NvmlLibrary, NvmlUnavailable, OnQueryError
from otel_zernel_receivers.nvml.gpu_slot import GpuSlot
from otel_zernel_receivers.nvml.gpus.gpu import GpuRegistry, count_gpus

CLOSE_TIMEOUT = 0.7
"""Seconds that closing the driver may take: a cancelled receiver has to return within 1 s."""


class DriverSession:
    """The driver from opening NVML to closing it: a slot for each GPU, and the listener for XIDs."""

    def __init__(self, library: NvmlLibrary, listener: XidListener, new_slot: Callable[[int], GpuSlot]) -> None:
        self.library = library
        self.listener = listener
        self.slots: list[GpuSlot] = []
        """By index."""
        self._new_slot = new_slot

    @property
    def uuids(self) -> set[str]:
        """The uuids of the boards that were found."""
        return {slot.gpu.board.identity.uuid for slot in self.slots if slot.gpu}

    @property
    def all_checked(self) -> bool:
        """Whether every slot was checked for a GPU."""
        return all(slot.checked for slot in self.slots)

    @property
    def may_miss_gpus(self) -> bool:
        """Whether there may be a GPU that the driver lists only after it is opened again."""
        no_gpus = self.all_checked and not self.uuids
        return no_gpus or self.listener.failed or any(slot.lost for slot in self.slots)

    def add_slots(self, count: int) -> list[GpuSlot]:
        """Adds slots until there are `count`. Returns those that were added."""
        added = [self._new_slot(index) for index in range(len(self.slots), count)]
        self.slots += added
        return added

    def close(self) -> bool:
        """Closes the driver, and returns whether that worked. Blocks. No GPU's thread may be inside the driver."""
        closed = self.listener.close(timeout=1.0)
        if closed:
            self.library.close()
        return closed


class DriverThread:
    """A thread that opens the driver, counts its GPUs and closes it. If the driver hangs, only this thread hangs."""

    def __init__(
        self,
        config: NvmlConfig,
        registry: GpuRegistry,
        on_error: OnQueryError,
        sessions: list[DriverSession],
        in_use: Callable[[], bool],
    ) -> None:
        """Starts the thread.

        `sessions` holds the sessions that are not closed. `in_use` returns whether a GPU's thread is inside the driver.
        """
        self._config = config
        self._registry = registry
        self._on_error = on_error
        self._sessions = sessions
        self._in_use = in_use
        self._thread = WorkerThread("nvml")

    @property
    def busy(self) -> bool:
        """Whether the thread is inside the driver."""
        return self._thread.busy

    def stop(self) -> None:
        """Lets the thread end after its current call."""
        self._thread.close()

    async def open(self) -> DriverSession:
        """A new session. Raises `NvmlUnavailable`, also if the driver takes longer than `rediscover_interval`."""
        try:
            if self.busy:
                raise TimeoutError
            async with asyncio.timeout(self._config.rediscover_interval):
                return await self._thread.call(self._open)
        except TimeoutError:
            raise NvmlUnavailable("NVIDIA's driver does not answer") from None

    async def count_gpus(self, session: DriverSession) -> int:
        """The number of GPUs that the driver lists; 0 if it does not answer in time. Raises `NvmlUnavailable`."""
        if self.busy:
            return 0
        try:
            async with asyncio.timeout(self._config.timeout):
                return await self._thread.call(partial(count_gpus, session.library))
        except TimeoutError:
            return 0

    async def close(self, session: DriverSession) -> None:
        """Closes the session as soon as no thread is inside the driver.

        If that takes longer than `CLOSE_TIMEOUT`, the session is closed when the next one is opened.
        """
        session.listener.stop()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                while self.busy or self._in_use():  # noqa: ASYNC110  # threads have no event to wait for
                    await asyncio.sleep(0.01)
                await self._thread.call(self._close_sessions)
        except TimeoutError:
            return

    def _open(self) -> DriverSession:
        self._close_sessions()
        library = NvmlLibrary(self._on_error)
        try:
            count = count_gpus(library)
            listener = XidListener(library, self._registry.xids.add)
        except NvmlUnavailable:
            library.close()
            raise
        interval = self._config.rediscover_interval
        session = DriverSession(
            library, listener, lambda index: GpuSlot(library, index, listener, self._registry, interval)
        )
        session.add_slots(count)
        self._sessions.append(session)
        return session

    def _close_sessions(self) -> None:
        """Closes all sessions, unless a GPU's thread is inside the driver: NVML must not be shut down under a call."""
        if not self._in_use():
            self._sessions[:] = [session for session in self._sessions if not session.close()]
