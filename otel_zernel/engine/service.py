"""One running collector: start, supervision, reloads, shutdown. Downstream starts first and stops last."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from otel_zernel.batch import ItemCount
from otel_zernel.clock import Clock, SystemClock
from otel_zernel.component import Exporter
from otel_zernel.config.schema import Settings
from otel_zernel.engine.difference import Place, definitions
from otel_zernel.engine.graph import Graph
from otel_zernel.engine.lifetime import Lifetimes, cancel_and_wait
from otel_zernel.engine.receivers import SupervisedReceiver
from otel_zernel.engine.transition import Transition, Work
from otel_zernel.errors import CannotStart
from otel_zernel.runtime.handover import HANDOVER
from otel_zernel.telemetry.metering import Metering
from otel_zernel.text import quoted

_logger = logging.getLogger("otel_zernel.engine.service")
_TAKEOVER: Final = 2.0
"""Seconds in which a receiver that a reload restarts takes its port over."""


class Outcome(NamedTuple):
    """The result of a service: zeros if all data was received and delivered."""

    undelivered: int
    """Items that were accepted, and neither delivered nor given up."""
    lost: int
    """Items that exporters gave up."""
    failed_receivers: int = 0
    """Receivers with a problem at the end."""

    @property
    def lossless(self) -> bool:
        """Whether exporters delivered everything that was accepted, or keep it on the disk."""
        return self.undelivered == self.lost == 0

    @property
    def complete(self) -> bool:
        """Whether all data was received and delivered."""
        return self.lossless and self.failed_receivers == 0


class Patience(NamedTuple):
    """The times of a reload, in seconds."""

    start: float = 10.0
    """A component may need this time to start. The data of the others waits meanwhile."""
    retry: float = 10.0
    """After this time, a component that could not return after a failed reload is started again."""


@dataclass(slots=True)
class _Fallback:
    """The configuration to return to while receivers of its successor have not proven that they work."""

    settings: Settings
    unproven: set[str] = field(default_factory=set)
    """The ids of the receivers that the reload started."""


class Service:
    """Runs a validated configuration, and those that `reload` gives it, until it is stopped."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        on_change: Callable[[Settings], None] = lambda _: None,
        patience: Patience | None = None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called with the settings in use after each change, `on_ready` as soon as all components have
        started, and all servers listen.
        """
        self.settings = settings
        self.graph = Graph(clock or SystemClock())
        self._clock = clock or SystemClock()
        self._on_change = on_change
        self._on_ready = on_ready
        self._patience = patience or Patience()
        self._changed = asyncio.Event()
        """Set when `_supervise` has something to do."""
        self._work = Work(self._changed.set)
        self._wanted: tuple[Settings, asyncio.Future[bool]] | None = None
        self._fallback: _Fallback | None = None

    async def run(self, stop: asyncio.Event, *, exit_when_done: bool = False) -> Outcome:
        """Runs until `stop` is set. With `exit_when_done`, also ends when all receivers have finished and all queues
        are empty.

        Raises `CannotStart` with one line for each component that cannot start.
        """
        async with Metering(self._clock) as metering, Lifetimes[Place]() as lifetimes:
            transition = Transition(self.graph, self._work, lifetimes, metering, self._patience.start)
            try:
                await transition.start(self.settings)
                self._start_work()
                await self._supervise(transition, stop, exit_when_done)
            except CannotStart:
                log_losses(self)
                raise
            finally:
                self.graph.health.unavailable()
                if self._wanted:
                    self._wanted[1].set_result(False)
                await self._work.stop()
                HANDOVER.release()
            return await self._shut_down(stop, transition.lost)

    async def reload(self, settings: Settings) -> bool:
        """Changes to other settings. The result is whether they are in use. If they cannot start, nothing changes."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._wanted = (settings, answer)
        self._changed.set()
        return await answer

    def exporter(self, id_: str) -> Exporter:
        """The running exporter with this id, for a program that runs the collector and reads one of its exporters.

        A reload may replace it: ask again instead of keeping it. After the end it is the last one. Raises `LookupError`
        if no exporter with this id has started.
        """
        if id_ not in self.graph.deliveries:
            known = ", ".join(self.graph.deliveries) or "none"
            raise LookupError(f"no exporter {quoted(id_)} runs; running exporters: {known}")
        return self.graph.deliveries[id_].exporter

    def undelivered(self) -> dict[str, ItemCount]:
        """The items that each exporter has not delivered, by its id. Empty if all is delivered."""
        waiting = {id_: delivery.undelivered() for id_, delivery in self.graph.deliveries.items()}
        return {id_: count for id_, count in waiting.items() if count.total}

    async def _supervise(self, transition: Transition, stop: asyncio.Event, exit_when_done: bool) -> None:
        """Returns when `stop` is set, or when the work is done. Raises `CannotStart`."""
        stopping = asyncio.create_task(stop.wait())
        ready = asyncio.create_task(self._all_listen())
        for waiting in (stopping, ready):
            waiting.add_done_callback(lambda _: self._changed.set())
        is_idle = False
        try:
            while not stop.is_set():
                if failed := self._work.failed():
                    await self._on_failed(failed, transition, stop)
                elif self._wanted:
                    (settings, answer), self._wanted = self._wanted, None
                    answer.set_result(await self._change(settings, transition, stop))
                elif self.graph.health.up_since is None and not self._silent():
                    self._announce()
                elif self._work.is_finished and exit_when_done:
                    return
                else:
                    if self._work.is_finished and not is_idle and self.graph.receivers:
                        _logger.info("Every receiver has finished; the collector stays up until it is stopped.")
                    is_idle = self._work.is_finished
                    await self._wait_for_change()
        finally:
            stopping.cancel()
            ready.cancel()

    def _silent(self) -> list[SupervisedReceiver]:
        """The receivers whose servers do not listen yet. Those of other components do so since their start."""
        return [receiver for receiver in self.graph.receivers.values() if not receiver.context.listening.is_set()]

    async def _all_listen(self) -> None:
        while silent := self._silent():
            await silent[0].context.listening.wait()

    def _announce(self) -> None:
        self.graph.health.available(self._clock.time_ns())
        _logger.info("Everything is ready. Begin running and processing data.")
        self._on_ready()

    async def _wait_for_change(self) -> None:
        """Returns when there may be something to do. Components that could not return are then tried again."""
        complete = self.graph.running.keys() == definitions(self.settings).keys()
        retrying = None if complete else asyncio.create_task(self._retry_later())
        await self._changed.wait()
        self._changed.clear()
        if retrying:
            retrying.cancel()

    async def _retry_later(self) -> None:
        await self._clock.sleep(self._patience.retry)
        self._wanted = self._wanted or (self.settings, asyncio.get_running_loop().create_future())
        self._changed.set()

    async def _change(
        self, settings: Settings, transition: Transition, stop: asyncio.Event, *, back: bool = False
    ) -> bool:
        """Reloads. The result is whether `settings` are in use; if not, the previous ones are.

        Receivers that ran before, when the configuration was in use (`back`), are persistent.
        """
        previous, self._fallback = self.settings, None
        before = dict(self.graph.receivers)
        started = self._clock.monotonic()
        try:
            await transition.reload(settings, previous, stop)
        except CannotStart:
            self._start_work(persistent=True)
            _logger.info("The previous configuration runs again.")
            return False
        self.settings = settings
        self._start_work(persistent=back)
        if not back:
            unproven = {id_ for id_, receiver in self.graph.receivers.items() if before.get(id_) is not receiver}
            self._fallback = _Fallback(previous, unproven)
        self._on_change(settings)
        _logger.info("Reloaded the configuration in %.2f s.", self._clock.monotonic() - started)
        return True

    async def _on_failed(self, failed: dict[str, CannotStart], transition: Transition, stop: asyncio.Event) -> None:
        """Returns to the previous configuration if a reload started the receivers that cannot start.

        Raises `CannotStart` with one line for each if they were started with the collector.
        """
        fallback, messages = self._fallback, list(map(str, failed.values()))
        if fallback is None or not fallback.unproven.issuperset(failed):
            raise CannotStart("\n".join(messages))
        _logger.error("Reload failed; returning to the previous configuration: %s", "; ".join(messages))
        await self._work.stop_receivers(failed)
        await self._change(fallback.settings, transition, stop, back=True)

    def _start_work(self, *, persistent: bool = False) -> None:
        HANDOVER.release_after(_TAKEOVER)
        self._work.start_receivers(self.graph.receivers, persistent=persistent)
        self._work.start_ticks(self.graph.pipelines.values())

    async def _shut_down(self, stop: asyncio.Event, lost_before: int) -> Outcome:
        """Delivers the remaining batches. If `stop` is set, or as soon as it is, `shutdown_timeout` limits the time."""
        timeout = self.settings.shutdown_timeout
        limit = f" for at most {timeout:g} s" if stop.is_set() else ""
        _logger.info("Stopping: delivering the queued batches%s.", limit)
        draining = asyncio.create_task(_drain(self.graph), name="draining")
        if not stop.is_set():
            await _until(draining, stop)
        self._hurry(timeout)
        await asyncio.wait({draining}, timeout=timeout)
        await cancel_and_wait([draining])
        log_losses(self)
        for receiver in self.graph.receivers.values():
            _logger.info("Receiver %s: accepted %s.", receiver.context.id, receiver.fan_out.accepted)
        waiting = sum(count.total for count in self.undelivered().values())
        lost = lost_before + sum(delivery.lost for delivery in self.graph.deliveries.values())
        problems = self.graph.health.problems
        failed = sum(receiver.context.path in problems for receiver in self.graph.receivers.values())
        return Outcome(waiting, lost, failed)

    def _hurry(self, seconds: float) -> None:
        deadline = self._clock.monotonic() + seconds
        for delivery in self.graph.deliveries.values():
            delivery.consumers.hurry(deadline)


def log_losses(service: Service) -> None:
    """Logs the undelivered and the lost items of each exporter, with the reason."""
    deliveries = service.graph.deliveries
    for id_, count in service.undelivered().items():
        problem = deliveries[id_].problem or "the time was too short"
        fields = _fields(id_, count, "undelivered")
        _logger.error("Exporter %s could not deliver %s: %s", id_, count, problem, extra=fields)
    for id_, delivery in deliveries.items():
        if (stored := delivery.queue.stored()).total:
            _logger.info("Exporter %s keeps %s on the disk; they are delivered after the next start.", id_, stored)
        for reason, count in delivery.losses.items():
            fields = _fields(id_, count, reason)
            _logger.error("Exporter %s has lost %s since its start: %s", id_, count, reason, extra=fields)
        for reason, items in delivery.rejected().items():
            fields = {"fields": {"otelcol.component.id": id_, "reason": reason, "items": items}}
            _logger.error("Exporter %s has lost %d items since its start: %s", id_, items, reason, extra=fields)


def _fields(exporter: str, count: ItemCount, reason: str) -> dict[str, Any]:
    """The fields of a line about lost items, for programs that read the log: the exporter, the reason, the numbers."""
    numbers = {name: number for name, number in count._asdict().items() if number}
    return {"fields": {"otelcol.component.id": exporter, "reason": reason, **numbers}}


async def _drain(graph: Graph) -> None:
    await asyncio.gather(*(pipeline.flush() for pipeline in graph.pipelines.values()))
    await asyncio.gather(*(delivery.drain() for delivery in graph.deliveries.values()))


async def _until(work: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Returns when the work is done or `stop` is set. Raises the exception of the work."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        stopping.cancel()
