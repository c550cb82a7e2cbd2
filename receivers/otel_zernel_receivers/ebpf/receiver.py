"""The ebpf receiver: the waiting around a session."""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Self

from otel_zernel.batch import STABLE_SIGNALS, Batch, Signal
from otel_zernel.component import Context, Emit, Finding, Insist, Receiver
from otel_zernel.component.forms import DataForms
from otel_zernel.errors import Refused, Rejected
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.pid_namespace import unseen_processes
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.kernel.unavailable import Unavailable

if TYPE_CHECKING:  # modules that work on Linux only are imported when the receiver runs
    from otel_zernel_receivers.ebpf.budget.sampling import Switch
    from otel_zernel_receivers.ebpf.kernel.ring import Wakeup
    from otel_zernel_receivers.ebpf.session import Session

OpenSession = Callable[[EbpfConfig, Context], AbstractContextManager["Session"]]

SHORTEST_INTERVAL = 0.1
"""Seconds between readings when one process after another ends."""
GATHER_INTERVAL = 0.125
"""Seconds. The kernel has room for 6,100 events, which is 0.4 s of one job with steps of 0.3 ms."""


class EbpfReceiver(Receiver):
    """Watches CUDA, NCCL and PyTorch in running processes from the kernel, and changes nothing in them."""

    Config = EbpfConfig
    stability = "alpha"
    signals: frozenset[Signal] = frozenset(STABLE_SIGNALS)

    def __init__(self, config: EbpfConfig, context: Context, open_session: OpenSession | None = None) -> None:
        super().__init__(config, context)
        self._open_session = open_session or _open_session

    @classmethod
    def forms(cls, config: EbpfConfig) -> DataForms:
        from otel_zernel_receivers.ebpf.emit.families import OPERATION_FAMILIES

        histograms = {family.duration.name: None for family in OPERATION_FAMILIES.values()}
        return DataForms(emits={"moving_bounds": tuple(histograms), "interval_spans": (semconv.INTERVAL,)})

    @classmethod
    @contextmanager
    def prepared(cls, config: EbpfConfig) -> Iterator[type[Self]]:
        """A class like this one whose `run` with this configuration starts sooner: what takes long has begun, in
        threads. For programs that have more to do before they run it."""
        if sys.platform != "linux":
            yield cls
            return
        from otel_zernel_receivers.ebpf.opening import SessionAhead

        with SessionAhead(config) as ahead:

            class Prepared(cls):  # type: ignore[valid-type, misc]  # mypy knows no class that is a variable
                def __init__(self, config: EbpfConfig, context: Context) -> None:
                    super().__init__(config, context, ahead.open)

            yield Prepared

    @classmethod
    def examine(cls, config: EbpfConfig | None = None) -> Iterable[Finding]:
        if sys.platform != "linux":
            yield Finding("kernel", "eBPF works on Linux only. Run the collector there", ok=False)
            return
        from otel_zernel_receivers.ebpf.doctor import examine

        yield from examine(config or EbpfConfig())
        if unseen := unseen_processes():
            yield Finding("PID namespace", unseen)

    async def run(self, emit: Emit) -> None:
        """Emits the kernel's counts every `interval`. While eBPF does not work, reports why in health, and tries again
        every `rescan_interval`."""
        while True:
            try:
                async with _opened(self._open_session(self.config, self.context)) as session:
                    self.context.report(None)
                    await self._follow(session, emit)
            except Unavailable as problem:
                if self.context.health.problems.get(self.context.path) != str(problem):
                    self.context.logger.warning(
                        "Nothing is counted yet: %s. Trying again every %g s", problem, self.config.rescan_interval
                    )
                    for detail in problem.details:
                        self.context.logger.debug("Tried: %s", detail)
                self.context.report(str(problem))
                await self.context.clock.sleep(self.config.rescan_interval)

    async def _follow(self, session: "Session", emit: Emit) -> None:
        """Attaches and reads until cancelled, then reads once more."""
        clock, insist = self.context.clock, Insist(emit, self.context.clock)
        pending: deque[Batch] = deque()
        rescan_at = clock.monotonic()
        try:
            with _event_of(session.wakeup) as is_due, _Gathering(session, is_due) as gathering:
                while True:
                    if clock.monotonic() >= rescan_at:
                        rescan_at = clock.monotonic() + self.config.rescan_interval
                        await gathering.between(session.attach)
                    await gathering.between(lambda: pending.extend(session.read().batches))
                    await self._emit_all(pending, insist)  # the first reading says that the probes are on
                    await self._pass_interval(session, gathering, is_due)
        except asyncio.CancelledError:
            await run_in_thread(lambda: pending.extend(session.read(is_last=True).batches))
            await self._emit_all(pending, emit)
            raise

    async def _pass_interval(self, session: "Session", gathering: "_Gathering", is_due: asyncio.Event) -> None:
        """Waits for the next reading.

        With sampling, it switches probes in that time. Without sampling, the wait ends when a process ends, and when
        sampling begins.
        """
        clock, interval = self.context.clock, session.interval
        began = clock.monotonic()
        switches: list[Switch] = []
        await gathering.between(lambda: switches.extend(session.switches()))
        for switch in switches:
            await clock.sleep(switch.delay)
            await gathering.between(switch.apply)
        left = began + interval - clock.monotonic()
        await clock.sleep(max(min(SHORTEST_INTERVAL, left), 0.0))
        rest = clock.sleep(max(left - SHORTEST_INTERVAL, 0.0))
        await (rest if switches else _first_of(rest, is_due.wait()))
        is_due.clear()

    async def _emit_all(self, pending: deque[Batch], emit: Emit) -> None:
        """Emits all that is `pending`. If cancelled, the rest stays in `pending`."""
        while pending:
            await self._emit(pending[0].copy(), emit)  # the pipelines may edit it, and a cancelled batch comes again
            pending.popleft()
            await asyncio.sleep(0)  # other tasks run between batches

    async def _emit(self, batch: Batch, emit: Emit) -> None:
        items = batch.item_count
        try:
            await emit(batch)
        except Rejected as rejected:  # counted by the component that rejected it
            self.context.logger.warning("Downstream rejected a batch of %d items: %s", items, rejected)
        except Refused:  # at the end only: until then `Insist` waits, and the kernel counts on
            self.context.drop(items, "refused")


def _open_session(config: EbpfConfig, context: Context) -> AbstractContextManager["Session"]:
    if sys.platform != "linux":
        raise Unavailable("eBPF works on Linux only. Run the collector there")
    from otel_zernel_receivers.ebpf.session import Session

    return Session.open(config, context)


@asynccontextmanager
async def _opened(opening: AbstractContextManager["Session"]) -> "AsyncIterator[Session]":
    """Opens and closes the session in threads. A session is closed even if opening it is cancelled."""
    stack = ExitStack()
    try:
        yield await run_in_thread(lambda: stack.enter_context(opening))
    finally:
        await run_in_thread(stack.close)


class _Gathering:
    """Moves events out of the kernel, so that its ring buffer has room, in a thread of its own: the pipelines may keep
    the event loop busy for longer than the room lasts."""

    def __init__(self, session: "Session", is_due: asyncio.Event) -> None:
        """Sets `is_due` if a reading is due earlier."""
        self._session = session
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._loop, self._is_due = asyncio.get_running_loop(), is_due
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="ebpf events", daemon=True)

    async def between(self, call: Callable[[], None]) -> None:
        """Calls something of the session in a thread. Raises what it raises, or what gathering has raised."""

        def locked() -> None:
            with self._lock:
                if self._problem:
                    raise self._problem
                call()

        await run_in_thread(locked)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._problem and not self._stop.wait(GATHER_INTERVAL):
            try:
                is_due = self._gather()
            except Exception as problem:  # noqa: BLE001  # `between` raises it
                self._problem, is_due = problem, True
            if is_due:
                self._loop.call_soon_threadsafe(self._is_due.set)

    def _gather(self) -> bool:
        """Returns whether a reading is due. A reading or a scan may last longer than the kernel's room."""
        is_due = self._session.make_room()
        if self._lock.acquire(blocking=False):
            try:
                is_due |= self._session.gather()
            finally:
                self._lock.release()
        return is_due


@contextmanager
def _event_of(wakeup: "Wakeup") -> Iterator[asyncio.Event]:
    """An event that is set at each wakeup."""
    event, loop = asyncio.Event(), asyncio.get_running_loop()

    def set_event() -> None:
        wakeup.reset()
        event.set()

    loop.add_reader(wakeup, set_event)
    try:
        yield event
    finally:
        loop.remove_reader(wakeup)


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Returns when the first wait ends, and cancels the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
