"""The nvml receiver: opens the driver, scrapes each GPU, and opens the driver again when its GPUs change."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from otel_zernel.component import Context, Emit, Finding, Receiver
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.declared import QUERY_ERRORS, TIMEOUTS
from otel_zernel_receivers.nvml.doctor import examine
from otel_zernel_receivers.nvml.driver.events import XidCounts
from otel_zernel_receivers.nvml.driver.library import DriverMissing, NvmlUnavailable
from otel_zernel_receivers.nvml.gpu_slot import GpuSlot
from otel_zernel_receivers.nvml.gpus.gpu import Gpu, GpuRegistry
from otel_zernel_receivers.nvml.points import attributes as a
from otel_zernel_receivers.nvml.session import DriverSession, DriverThread
from otel_zernel_receivers.nvml.watch import GpuScraping, deliver


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
        self._timeouts = meter.create_counter(*TIMEOUTS.counter)
        self._errors = meter.create_counter(*QUERY_ERRORS.counter)
        self._registry = GpuRegistry(config.device_options(), context, XidCounts(context.clock.time_ns))
        self._no_gpus = ""
        """The logged reason why there are no GPUs. It is not logged again until it changes."""
        self._scrapings: list[GpuScraping] = []
        """One per GPU, by index. They outlive the driver's sessions."""
        self._sessions: list[DriverSession] = []
        """The sessions that are not closed: the current one, and earlier ones in which a thread hung."""

    async def run(self, emit: Emit) -> None:
        await self.context.clock.sleep(self.config.initial_delay)
        driver = DriverThread(self.config, self._registry, self._count_error, self._sessions, self._in_use)
        try:
            while True:
                await self._run_session(driver, emit)
        finally:
            driver.stop()
            for scraping in self._scrapings:
                scraping.close()
            self._scrapings.clear()

    def _count_error(self, query: str, error: str) -> None:
        self._errors.add(1, {a.QUERY: query, a.ERROR: error})

    def _in_use(self) -> bool:
        """Whether a GPU's thread is inside the driver."""
        return any(scraping.busy for scraping in self._scrapings)

    async def _run_session(self, driver: DriverThread, emit: Emit) -> None:
        """Opens the driver and scrapes its GPUs until it has to be opened again. Without a driver, only waits."""
        try:
            session = await driver.open()
            self._no_gpus = ""
            try:
                await self._scrape_gpus(session, driver, emit)
            finally:
                await driver.close(session)
        except NvmlUnavailable as problem:
            interval = self.config.rediscover_interval
            self.context.report(f"no GPUs: {problem}", is_absence=isinstance(problem, DriverMissing))
            if str(problem) != self._no_gpus:
                self._no_gpus = str(problem)
                self.context.logger.warning("No GPUs: %s. Retrying every %g s", problem, interval)
            await self.context.clock.sleep(interval)
        else:
            self.context.logger.debug("Opening the driver again: a GPU is missing or may have been added")

    async def _scrape_gpus(self, session: DriverSession, driver: DriverThread, emit: Emit) -> None:
        """Scrapes all GPUs until the driver has to be opened again. Raises `NvmlUnavailable`."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = self._start_scraping(session, session.slots, emit, group)
                while True:
                    tasks += await self._rediscover(session, driver, emit, group)
                    if self._must_reopen(session, driver):
                        break
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def _start_scraping(
        self, session: DriverSession, slots: Sequence[GpuSlot], emit: Emit, group: asyncio.TaskGroup
    ) -> list[asyncio.Task[None]]:
        """Starts a task for each slot."""
        on_problem = partial(self._report, session)
        tasks = [group.create_task(self._scraping(slot.index).run(slot, emit, on_problem)) for slot in slots]
        self._report(session)
        return tasks

    def _scraping(self, index: int) -> GpuScraping:
        while len(self._scrapings) <= index:
            self._scrapings.append(GpuScraping(len(self._scrapings), self.config, self.context, self._timeouts))
        return self._scrapings[index]

    async def _rediscover(
        self, session: DriverSession, driver: DriverThread, emit: Emit, group: asyncio.TaskGroup
    ) -> list[asyncio.Task[None]]:
        """Waits, then starts a task for each GPU that was added, and emits missing GPUs as failed."""
        await self.context.clock.sleep(self.config.rediscover_interval)
        added = session.add_slots(await driver.count_gpus(session))
        tasks = self._start_scraping(session, added, emit, group)
        for gpu in self._missing(session):
            await deliver(gpu.failed_batch(), emit, self.config, self.context)
        self._report(session)
        return tasks

    def _must_reopen(self, session: DriverSession, driver: DriverThread) -> bool:
        """Whether a GPU may appear if the driver is opened again. While a thread hangs, the driver cannot be closed."""
        if driver.busy or any(scraping.hung for scraping in self._scrapings):
            return False
        return session.may_miss_gpus or bool(self._missing(session))

    def _missing(self, session: DriverSession) -> list[Gpu]:
        """GPUs of earlier sessions that this session does not list."""
        if not session.all_checked:
            return []
        return [gpu for uuid, gpu in self._registry.gpus.items() if uuid not in session.uuids]

    def _report(self, session: DriverSession) -> None:
        """Shows the problems of all GPUs in health."""
        problems = [scraping.problem for scraping in self._scrapings[: len(session.slots)] if scraping.problem]
        problems += [f"{gpu.name} is missing: the driver does not list it" for gpu in self._missing(session)]
        if not session.slots:
            problems.append("NVIDIA's driver lists no GPU")
        self.context.report("; ".join(problems) or None)
