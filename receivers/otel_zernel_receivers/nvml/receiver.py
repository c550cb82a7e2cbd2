"""Opens the driver, has each of its GPUs watched, and starts over when the driver does."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from otel_zernel.component import Context, Emit, Finding, Receiver
from otel_zernel.engine.scraping import ScrapeThread
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.doctor import examine
from otel_zernel_receivers.nvml.driver.events import Listener, Xids
from otel_zernel_receivers.nvml.driver.library import Library, Unavailable
from otel_zernel_receivers.nvml.gpu_slot import Place
from otel_zernel_receivers.nvml.gpus.gpu import Gpu, Maker, count
from otel_zernel_receivers.nvml.points import metrics as m
from otel_zernel_receivers.nvml.watch import Watch, deliver

CLOSING = 0.7
"""Seconds that a cancelled receiver spends on closing the driver: within a second it has to be gone."""


class _Changed(Exception):
    """A GPU that was lost may be back, or others there: the driver has to be opened anew."""


@dataclass(frozen=True, slots=True)
class _Session:
    """From opening the driver to closing it."""

    library: Library
    listener: Listener
    places: list[Place]

    @property
    def uuids(self) -> set[str]:
        """Of the boards that said who they are."""
        return {place.gpu.board.identity.uuid for place in self.places if place.gpu}

    @property
    def looked(self) -> bool:
        """Whether every place was asked who is there."""
        return all(place.looked for place in self.places)

    @property
    def lacking(self) -> bool:
        """Whether a GPU may be there that only a driver opened anew would show."""
        nobody = self.looked and not self.uuids
        return nobody or self.listener.broken or any(place.lost for place in self.places)

    def close(self) -> bool:
        """Whether the driver is closed. Blocks; must not be called while a thread of a GPU's is inside it."""
        closed = self.listener.close(timeout=1.0)
        if closed:
            self.library.close()
        return closed


class NvmlReceiver(Receiver):
    """Watches NVIDIA GPUs through NVML: utilisation, memory, power, temperatures, clocks, links, errors, processes."""

    Config = NvmlConfig
    stability = "beta"
    signals = frozenset({"metrics"})

    @classmethod
    def examine(cls, config: NvmlConfig | None = None) -> Iterable[Finding]:
        return examine()

    def __init__(self, config: NvmlConfig, context: Context) -> None:
        super().__init__(config, context)
        meter = context.meter
        self._timeouts = meter.create_counter(
            "zernel.nvml.timeouts", "{timeout}", "Calls a GPU did not answer in time."
        )
        errors = meter.create_counter("zernel.nvml.query.errors", "{error}", "Queries that failed and may work again.")
        self._xids = Xids(context.clock.time_ns)
        self._failed = lambda query, error: errors.add(1, {m.QUERY: query, m.ERROR: error})
        self._maker = Maker(config, context, self._xids)
        self._watches: list[Watch] = []
        """One for each GPU, by index."""
        self._open_sessions: list[_Session] = []
        """One, and those that could not be closed because somebody hung."""

    async def run(self, emit: Emit) -> None:
        await self.context.clock.sleep(self.config.initial_delay)
        opener = ScrapeThread("nvml")
        try:
            while True:
                await self._until_it_breaks(opener, emit)
        finally:
            opener.close()
            for watch in self._watches:
                watch.close()
            self._watches.clear()

    async def _until_it_breaks(self, opener: ScrapeThread, emit: Emit) -> None:
        """From finding a driver to losing it; or to not finding one, and the pause after that."""
        try:
            if opener.busy:
                raise TimeoutError
            async with asyncio.timeout(self.config.rediscover_interval):
                session = await opener.call(self._open)
            await self._watch(session, opener, emit)
        except (Unavailable, TimeoutError) as problem:
            sentence = str(problem) or "NVIDIA's driver does not answer"
            self.context.report(f"no GPUs: {sentence}")
            self.context.logger.warning(
                "No GPUs: %s. Looking again every %g s", sentence, self.config.rediscover_interval
            )
            await self.context.clock.sleep(self.config.rediscover_interval)
        except _Changed:
            self.context.logger.debug("Opening the driver anew: its GPUs have changed")

    def _open(self) -> _Session:
        """Opens the driver; blocks. Raises `Unavailable`."""
        self._close()
        library = Library(self._failed)
        try:
            number = count(library)
            listener = Listener(library, self._xids.count)
        except Unavailable:
            library.close()
            raise
        session = _Session(library, listener, [])
        self._add_places(session, number)
        self._open_sessions.append(session)
        return session

    def _add_places(self, session: _Session, number: int) -> None:
        """Adds those that are new of the `number` the driver lists."""
        for index in range(len(session.places), number):
            session.places.append(Place(session.library, index, session.listener, self._maker))

    def _close(self) -> None:
        """Closes the driver, unless a GPU's thread is inside it, where nobody may take it away; blocks."""
        if not any(watch.busy for watch in self._watches):
            self._open_sessions[:] = [session for session in self._open_sessions if not session.close()]

    async def _watch(self, session: _Session, opener: ScrapeThread, emit: Emit) -> None:
        """Watches every place of the driver's. Raises `Unavailable` or `_Changed`."""
        try:
            async with asyncio.TaskGroup() as tasks:

                def watch(places: Sequence[Place]) -> None:
                    for place in places:
                        run = self._watch_of(place).run(place, emit, lambda: self._report(session))
                        tasks.create_task(run)
                    self._report(session)

                watch(session.places)
                tasks.create_task(self._rediscover(session, opener, emit, watch))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            await self._leave(session, opener)

    def _watch_of(self, place: Place) -> Watch:
        while len(self._watches) <= place.index:
            self._watches.append(Watch(len(self._watches), self.config, self.context, self._timeouts))
        return self._watches[place.index]

    async def _rediscover(
        self, session: _Session, opener: ScrapeThread, emit: Emit, watch: Callable[[Sequence[Place]], None]
    ) -> None:
        """Has new places watched. Raises `_Changed` whenever a GPU is missing, unless another hangs: then the driver
        cannot be closed. Raises `Unavailable`."""
        while True:
            await self.context.clock.sleep(self.config.rediscover_interval)
            known = len(session.places)
            self._add_places(session, await self._count(session, opener))
            watch(session.places[known:])
            missing = self._missing(session)
            for gpu in missing:
                await deliver(gpu.failed(), emit, self.config, self.context)
            self._report(session)
            if (missing or session.lacking) and not opener.busy and not any(one.hung for one in self._watches):
                raise _Changed

    async def _count(self, session: _Session, opener: ScrapeThread) -> int:
        """How many GPUs the driver lists now; 0 if it does not answer. Raises `Unavailable`."""
        if opener.busy:
            return 0
        try:
            async with asyncio.timeout(self.config.timeout):
                return await opener.call(partial(count, session.library))
        except TimeoutError:
            return 0

    async def _leave(self, session: _Session, opener: ScrapeThread) -> None:
        """Closes the driver as soon as nobody is inside it, if that is soon; else it is closed another time."""
        session.listener.stop()
        try:
            async with asyncio.timeout(CLOSING):
                while opener.busy or any(watch.busy for watch in self._watches):  # noqa: ASYNC110  # threads have no event to wait for
                    await asyncio.sleep(0.01)
                await opener.call(self._close)
        except TimeoutError:
            return

    def _missing(self, session: _Session) -> list[Gpu]:
        """GPUs that were there before and that no place of the driver's has now."""
        if not session.looked:
            return []
        return [gpu for uuid, gpu in self._maker.gpus.items() if uuid not in session.uuids]

    def _report(self, session: _Session) -> None:
        """Says in health what is wrong with whom."""
        troubles = [watch.trouble for watch in self._watches[: len(session.places)] if watch.trouble]
        troubles += [f"{gpu.name} is missing" for gpu in self._missing(session)]
        if not session.places:
            troubles.append("NVIDIA's driver knows no GPU")
        self.context.report("; ".join(troubles) or None)
