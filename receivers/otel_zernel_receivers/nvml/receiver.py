"""Finds the GPUs, watches each, and starts over when the driver does."""

import asyncio
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field

from otel_zernel.component import Context, Emit, Receiver
from otel_zernel.scraping import ScrapeThread
from otel_zernel_receivers.nvml import metrics as m
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.events import Listener, Xids
from otel_zernel_receivers.nvml.gpu import Found, Gpu, Maker, count, find, find_all
from otel_zernel_receivers.nvml.library import Library, Unavailable
from otel_zernel_receivers.nvml.watch import Watch, deliver

CLOSING = 0.7
"""Seconds that a cancelled receiver spends on closing the driver: within a second it has to be gone."""


class _Changed(Exception):
    """Other GPUs are there, or one that was lost may be back: the driver has to be opened anew."""


@dataclass
class _Session:
    """From opening the driver to closing it."""

    library: Library
    threads: list[ScrapeThread]
    """One for each GPU, by its index."""
    found: dict[int, Found]
    """The GPUs that said who they are, by index."""
    listener: Listener
    watches: list[Watch] = field(default_factory=list)

    @property
    def uuids(self) -> frozenset[str]:
        return _uuids(self.found.values())

    @property
    def mute(self) -> list[int]:
        """The GPUs that do not even say who they are, by index."""
        return [index for index, thread in enumerate(self.threads) if thread.busy and index not in self.found]

    @property
    def hung(self) -> bool:
        return bool(self.mute) or any(watch.trouble and not watch.lost for watch in self.watches)

    async def idle(self) -> None:
        """Returns when no thread of a GPU's is inside the driver."""
        while any(thread.busy for thread in self.threads):  # noqa: ASYNC110  # threads have no event to wait for
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Closes the driver; blocks. Must not be called while a thread of a GPU's is inside it."""
        if self.listener.join(5.0):
            self.library.close()


def _uuids(found: Iterable[Found]) -> frozenset[str]:
    return frozenset().union(*(one.uuids for one in found))


def _close_all(threads: Iterable[ScrapeThread]) -> None:
    for thread in threads:
        thread.close()


def _open_driver() -> tuple[Library, int]:
    """The driver, and how many GPUs it lists. Raises `Unavailable`."""
    library = Library()
    try:
        return library, count(library)
    except Unavailable:
        library.close()
        raise


class NvmlReceiver(Receiver):
    """Watches NVIDIA GPUs through NVML: utilisation, memory, power, temperatures, clocks, links, errors, processes."""

    Config = NvmlConfig
    stability = "beta"
    signals = frozenset({"metrics"})

    def __init__(self, config: NvmlConfig, context: Context) -> None:
        super().__init__(config, context)
        meter = context.meter
        self._timeouts = meter.create_counter(
            "zernel.nvml.timeouts", "{timeout}", "Calls a GPU did not answer in time."
        )
        errors = meter.create_counter("zernel.nvml.query.errors", "{error}", "Queries that failed and may work again.")
        self._xids = Xids(context.clock.time_ns)
        self._maker = Maker(
            config, context, self._xids, lambda query, error: errors.add(1, {m.QUERY: query, m.ERROR: error})
        )
        self._boards: dict[str, Gpu] = {}
        """All that were ever there, by the board's uuid."""

    async def run(self, emit: Emit) -> None:
        await self.context.clock.sleep(self.config.initial_delay)
        thread = ScrapeThread("nvml")
        try:
            while True:
                await self._until_it_breaks(thread, emit)
        finally:
            thread.close()

    async def _until_it_breaks(self, thread: ScrapeThread, emit: Emit) -> None:
        """From finding a driver to losing it; or to not finding one, and the pause after that."""
        try:
            session = await self._open(thread)
            await self._watch(session, thread, emit)
        except (Unavailable, TimeoutError) as problem:
            sentence = str(problem) or "NVIDIA's driver does not answer"
            self.context.report(f"no GPUs: {sentence}")
            self.context.logger.warning(
                "No GPUs: %s. Looking again every %g s", sentence, self.config.rediscover_interval
            )
            await self.context.clock.sleep(self.config.rediscover_interval)
        except _Changed:
            self.context.logger.debug("Opening the driver anew: its GPUs have changed")

    async def _open(self, thread: ScrapeThread) -> _Session:
        """Raises `Unavailable`, or `TimeoutError` if the driver hangs."""
        if thread.busy:
            raise TimeoutError
        async with asyncio.timeout(self.config.rediscover_interval):
            library, number = await thread.call(_open_driver)
        threads = [ScrapeThread(f"nvml {index}") for index in range(number)]
        try:
            answers = await asyncio.gather(*(self._find(library, index, own) for index, own in enumerate(threads)))
        except asyncio.CancelledError:
            _close_all(threads)
            raise
        found = {index: one for index, one in enumerate(answers) if one}
        handles = {one.identity.uuid: one.handle for one in found.values()}
        return _Session(library, threads, found, Listener(library, handles, self._xids.count))

    async def _find(self, library: Library, index: int, thread: ScrapeThread) -> Found | None:
        """Asks a GPU, in its own thread, who it is; None if it does not say."""
        try:
            async with asyncio.timeout(self.config.timeout):
                return await thread.call(lambda: find(library, index, platform.node()))
        except TimeoutError:
            self._timeouts.add(1, {"zernel.gpu.index": index})
            return None

    async def _watch(self, session: _Session, thread: ScrapeThread, emit: Emit) -> None:
        """Watches the GPUs that were found. Raises `Unavailable` or `_Changed`."""
        for index, one in session.found.items():
            gpu = self._maker.make(session.library, one)
            self._boards[one.identity.uuid] = gpu
            own = session.threads[index]
            session.watches.append(Watch(gpu, own, self.config, self.context, self._timeouts))
        self._report(session)
        session.listener.start()
        try:
            for gpu in self._missing(session):
                await deliver(gpu.failed(), emit, self.config, self.context)
            async with asyncio.TaskGroup() as tasks:
                for watch in session.watches:
                    tasks.create_task(watch.run(emit, lambda: self._report(session)))
                tasks.create_task(self._rediscover(session, thread))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            await self._close(session, thread)

    async def _rediscover(self, session: _Session, thread: ScrapeThread) -> None:
        """Raises `_Changed` once there are other GPUs or MIG instances, and whenever one is missing."""
        while True:
            await self.context.clock.sleep(self.config.rediscover_interval)
            if session.hung or thread.busy:  # opening it anew would hang, too
                continue
            found = await thread.call(lambda: find_all(session.library, platform.node()))
            missing = set(self._boards) - _uuids(found)
            if _uuids(found) != session.uuids or missing or not found or session.listener.broken:
                raise _Changed

    async def _close(self, session: _Session, thread: ScrapeThread) -> None:
        session.listener.stop()
        for watch in session.watches:
            watch.close()
        _close_all(session.threads)
        try:
            async with asyncio.timeout(CLOSING):
                await session.idle()
                if not thread.busy:
                    await thread.call(session.close)
        except TimeoutError:  # a driver that hangs cannot be closed, and stays open
            return

    def _missing(self, session: _Session) -> list[Gpu]:
        """Boards that were there before and are not now."""
        return [gpu for uuid, gpu in self._boards.items() if uuid not in session.uuids]

    def _report(self, session: _Session) -> None:
        """Says in health what is wrong with whom."""
        troubles = [watch.trouble for watch in session.watches if watch.trouble]
        troubles += [f"GPU {index} does not answer within {self.config.timeout:g} s" for index in session.mute]
        troubles += [f"{gpu.name} is missing" for gpu in self._missing(session)]
        if not session.threads:
            troubles.append("NVIDIA's driver knows no GPU")
        self.context.report("; ".join(troubles) or None)
