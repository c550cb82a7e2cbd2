"""Opens the driver, scrapes each GPU, and opens the driver again when its GPUs change.

A session with the driver is closed when no thread is inside the driver.
"""

import asyncio
import platform
import time
from collections.abc import Callable, Sequence
from functools import partial

from opentelemetry.metrics import Counter

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Emit, Insist
from otel_zernel.errors import Refused, Rejected
from otel_zernel.runtime.threads import WorkerThread
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.declared import QUERY_ERRORS, TIMEOUTS
from otel_zernel_receivers.nvml.driver.events import XidCounts, XidListener
from otel_zernel_receivers.nvml.driver.kernel_log import kernel_log, logged_xids
from otel_zernel_receivers.nvml.driver.library import (
    DriverMissing,
    GpuLost,
    GpuUnidentified,
    NvmlLibrary,
    NvmlUnavailable,
    OnQueryError,
)
from otel_zernel_receivers.nvml.gpus.gpu import Gpu, GpuRegistry, ListedGpu, count_gpus, find_gpu
from otel_zernel_receivers.nvml.points import attributes as a


class GpuSlot:
    """One index of the driver, while the driver is open. Used by one thread at a time; every method blocks."""

    def __init__(self, library: NvmlLibrary, index: int, listener: XidListener, registry: GpuRegistry) -> None:
        self.index = index
        self.gpu: Gpu | None = None
        """The GPU, once it has returned its uuid."""
        self.lost: str | None = None
        """If the GPU is lost: the reason, as a sentence without its subject."""
        self.checked = False
        """Whether the slot was checked for a GPU at least once."""
        self._library = library
        self._listener = listener
        self._registry = registry
        self._reports_status = "hw.status" in registry.config.enabled()
        self._clock = registry.context.clock
        self._next_check = self._clock.monotonic()

    @property
    def name(self) -> str:
        """For logs and health."""
        return self.gpu.name if self.gpu else f"GPU {self.index}"

    @property
    def problem(self) -> str | None:
        """The problem of the GPU, as a sentence without its subject."""
        return self.lost or ("answers none of its queries" if self.gpu and self.gpu.board.all_failed else None)

    @property
    def drain_interval(self) -> float | None:
        """Seconds after which the sample buffers must be read again; None without buffers."""
        return self.gpu.board.drain_interval if self.gpu and not self.lost else None

    def scrape(self) -> Batch:
        """The current points. Checks for another GPU first, if that is due. Raises `NvmlUnavailable`.

        A GPU that is lost before its uuid is known has its status by index.
        """
        unknown = self._registry.unknown(self.index, platform.node())
        try:
            if self._clock.monotonic() >= self._next_check:
                self._check()
            if self.gpu and not self.lost:
                return Batch.join([unknown.end(), self.gpu.scrape()])
        except GpuLost as lost:
            self.lost = str(lost)
        if self.gpu:
            return Batch.join([unknown.end(), self.gpu.board.failed_batch()])
        return unknown.failed_batch() if self.lost and self._reports_status else unknown.end()

    def drain(self) -> Batch:
        """Reads the sample buffers, and returns an empty batch: the next scrape sends the samples.

        Raises `NvmlUnavailable`.
        """
        try:
            if self.gpu and not self.lost:
                self.gpu.board.drain()
        except GpuLost as lost:
            self.lost = str(lost)
        return Batch()

    def _check(self) -> None:
        """Finds a new or returned GPU, and MIG instances that were created or destroyed. Raises `GpuLost`."""
        self._next_check = self._clock.monotonic() + self._registry.config.rediscover_interval
        try:
            listed = find_gpu(self._library, self.index, platform.node())
        except GpuUnidentified as problem:
            self.lost = self.lost if self.gpu else str(problem)
            return
        finally:
            self.checked = True
        if listed is None:
            self.lost = "is no longer accessible" if self.gpu else None
        elif self.gpu is None or self.lost or self.gpu.uuids != listed.uuids or _has_new_attributes(self.gpu, listed):
            self._listener.subscribe(listed.identity.uuid, listed.handle, with_mig=bool(listed.instances))
            self.gpu = self._registry.create(self._library, listed)
            self.lost = None


def _has_new_attributes(gpu: Gpu, listed: ListedGpu) -> bool:
    """Whether the board has returned an attribute that it did not return before."""
    return listed.identity.resource.items() > gpu.board.identity.resource.items()


async def deliver(batch: Batch, emit: Emit, config: NvmlConfig, context: Context) -> None:
    """Emits the points of a scrape. If downstream stays full until the next scrape, drops and counts them."""
    items = batch.item_count  # afterwards the batch belongs to the pipelines
    if not items:
        return
    try:
        async with asyncio.timeout(config.collection_interval):
            await Insist(emit, context.clock)(batch)
    except (TimeoutError, Refused):
        context.drop(items, "refused")
        context.logger.warning("Dropped a scrape of %d items: downstream is full", items)
    except Rejected:  # counted where it was rejected
        return


class GpuScraping:
    """Scrapes the GPU at one index, and reads its sample buffers between scrapes before they are overwritten.

    It outlives the driver's sessions: while its thread hangs in the driver, no second thread is started. The points of
    a late answer are sent.
    """

    def __init__(self, index: int, config: NvmlConfig, context: Context, timeouts: Counter) -> None:
        self.hung = False
        """Whether the last call did not return in time."""
        self.problem: str | None = None
        """A sentence, if the GPU does not answer or is lost."""
        self._config = config
        self._context = context
        self._timeouts = timeouts
        self._thread = WorkerThread(f"nvml {index}")
        self._call: asyncio.Task[Batch] | None = None
        self._error: str | None = None

    @property
    def busy(self) -> bool:
        """Whether the thread is inside the driver."""
        return self._thread.busy

    def close(self) -> None:
        """Discards the answer of a pending call, and lets the thread end after it."""
        if self._call:
            self._call.cancel()
        self._thread.close()

    async def run(self, slot: GpuSlot, emit: Emit, on_problem: Callable[[], None]) -> None:
        """Scrapes the slot until cancelled. Calls `on_problem` when `problem` changes. Raises `NvmlUnavailable`."""
        clock = self._context.clock
        await deliver(self._late_answer(), emit, self._config, self._context)
        due = clock.monotonic()
        while True:
            batch = await self._call_driver(slot, slot.scrape)
            self._update_problem(slot, on_problem)
            await deliver(batch, emit, self._config, self._context)
            due = max(due + self._config.collection_interval, clock.monotonic())
            await self._drain_until(due, slot)

    async def _call_driver(self, slot: GpuSlot, function: Callable[[], Batch]) -> Batch:
        """The answer of `function`, or an empty batch after the timeout.

        After a timeout, the next call does not run `function` but waits again for the pending answer.
        """
        if self._call is None:
            self._call = asyncio.create_task(self._thread.call(function))
        done, _ = await asyncio.wait({self._call}, timeout=self._config.timeout)
        self.hung = not done
        self._error = None
        if self.hung:
            gpu = {"hw.id": slot.gpu.board.identity.uuid} if slot.gpu else {semconv.GPU_INDEX: slot.index}
            self._timeouts.add(1, gpu)
            return Batch()
        call, self._call = self._call, None
        try:
            return call.result()
        except NvmlUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  # an unforeseen error must not stop the other GPUs
            self._error = f"cannot be scraped: {type(error).__name__}: {error}"
            return Batch()

    def _late_answer(self) -> Batch:
        """The answer to a call of an earlier session, if it has arrived."""
        if self._call is None or not self._call.done():
            return Batch()
        call, self._call = self._call, None
        return Batch() if call.cancelled() or call.exception() else call.result()

    async def _drain_until(self, due: float, slot: GpuSlot) -> None:
        """Waits until `due`, and meanwhile reads the sample buffers as often as needed."""
        clock = self._context.clock
        while (left := due - clock.monotonic()) > 0:
            pause = None if self.hung else slot.drain_interval
            if pause is None or pause >= left:
                return await clock.sleep(left)
            await clock.sleep(pause)
            await self._call_driver(slot, slot.drain)
        return None

    def _update_problem(self, slot: GpuSlot, on_problem: Callable[[], None]) -> None:
        predicate = f"does not answer within {self._config.timeout:g} s" if self.hung else self._error or slot.problem
        problem = f"{slot.name} {predicate}" if predicate else None
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            self._context.logger.error("%s", problem)
        else:
            self._context.logger.info("%s answers again", slot.name)
        on_problem()


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
        self, registry: GpuRegistry, on_error: OnQueryError, sessions: list[DriverSession], in_use: Callable[[], bool]
    ) -> None:
        """Starts the thread.

        `sessions` holds the sessions that are not closed. `in_use` returns whether a GPU's thread is inside the driver.
        """
        self._config = registry.config
        self._registry = registry
        self._on_error = on_error
        self._sessions = sessions
        self._in_use = in_use
        self._thread = WorkerThread("nvml")
        self._earlier_xids = self._config.earlier_xids

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
        self._read_log()
        try:
            count = count_gpus(library)
            listener = XidListener(library, self._registry.xids.add)
        except NvmlUnavailable:
            library.close()
            raise
        session = DriverSession(library, listener, lambda index: GpuSlot(library, index, listener, self._registry))
        session.add_slots(count)
        self._sessions.append(session)
        return session

    def _read_log(self) -> None:
        """Reads the XIDs from before the start, once."""
        if self._earlier_xids:
            clock, seconds = self._registry.context.clock, self._earlier_xids
            self._earlier_xids = 0.0
            now = clock.time_ns()
            booted = now - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            self._registry.logged_xids.update(logged_xids(kernel_log(), booted, now - round(seconds * 1e9)))

    def _close_sessions(self) -> None:
        """Closes all sessions, unless a GPU's thread is inside the driver: NVML must not be shut down under a call."""
        if not self._in_use():
            self._sessions[:] = [session for session in self._sessions if not session.close()]


class GpuWatch:
    """All GPUs of this machine."""

    def __init__(self, config: NvmlConfig, context: Context) -> None:
        self._config, self._context = config, context
        meter = context.meter
        self._timeouts = meter.create_counter(*TIMEOUTS.counter)
        self._errors = meter.create_counter(*QUERY_ERRORS.counter)
        self._registry = GpuRegistry(config, context, XidCounts(context.clock.time_ns))
        self._no_gpus = ""
        """The logged reason why there are no GPUs. It is not logged again until it changes."""
        self._scrapings: list[GpuScraping] = []
        """One per GPU, by index. They outlive the driver's sessions."""
        self._sessions: list[DriverSession] = []
        """The sessions that are not closed: the current one, and earlier ones in which a thread hung."""

    async def run(self, emit: Emit) -> None:
        """Scrapes until cancelled."""
        await self._context.clock.sleep(self._config.initial_delay)
        driver = DriverThread(self._registry, self._count_error, self._sessions, self._in_use)
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
            interval = self._config.rediscover_interval
            self._context.report(f"no GPUs: {problem}", is_absence=isinstance(problem, DriverMissing))
            if str(problem) != self._no_gpus:
                self._no_gpus = str(problem)
                self._context.logger.warning("No GPUs: %s. Retrying every %g s", problem, interval)
            await self._context.clock.sleep(interval)
        else:
            self._context.logger.debug("Opening the driver again: a GPU is missing or may have been added")

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
            self._scrapings.append(GpuScraping(len(self._scrapings), self._config, self._context, self._timeouts))
        return self._scrapings[index]

    async def _rediscover(
        self, session: DriverSession, driver: DriverThread, emit: Emit, group: asyncio.TaskGroup
    ) -> list[asyncio.Task[None]]:
        """Waits, then starts a task for each GPU that was added, and emits missing GPUs as failed."""
        await self._context.clock.sleep(self._config.rediscover_interval)
        added = session.add_slots(await driver.count_gpus(session))
        tasks = self._start_scraping(session, added, emit, group)
        for gpu in self._missing(session):
            await deliver(gpu.board.failed_batch(), emit, self._config, self._context)
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
        self._context.report("; ".join(problems) or None)
