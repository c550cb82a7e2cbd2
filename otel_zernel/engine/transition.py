"""The way from the components that run to those that a configuration wants: the start, a reload, and the way back."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from otel_zernel.config.schema import Settings
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.difference import Definition, Definitions, Difference, Place, definitions, difference
from otel_zernel.engine.graph import Graph, Instance
from otel_zernel.engine.lifetime import LONGEST_END, Lifetimes, cancel_and_wait
from otel_zernel.engine.pipelines.passage import Passage
from otel_zernel.engine.pipelines.pipeline import Pipeline
from otel_zernel.engine.receivers import SupervisedReceiver
from otel_zernel.errors import CannotStart
from otel_zernel.runtime.handover import HANDOVER
from otel_zernel.telemetry.metering import Measuring, Metering


class Work:
    """Starts and stops the tasks, each by itself. `on_end` is called when a receiver has ended."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._receivers: dict[str, asyncio.Task[None]] = {}
        self._ticks: list[asyncio.Task[None]] = []

    @property
    def is_finished(self) -> bool:
        """Whether every receiver has ended by itself."""
        return all(task.done() for task in self._receivers.values())

    def failed(self) -> dict[str, CannotStart]:
        """The errors of the receivers that cannot start, by id."""
        ended = {id_: task for id_, task in self._receivers.items() if task.done() and not task.cancelled()}
        return {id_: error for id_, task in ended.items() if isinstance(error := task.exception(), CannotStart)}

    def start_receivers(self, receivers: Mapping[str, SupervisedReceiver], *, persistent: bool = False) -> None:
        """Starts the receivers that have no task. One that has finished has one, and does not read its input again."""
        for id_, receiver in receivers.items():
            if id_ not in self._receivers:
                task = asyncio.create_task(receiver.run(persistent=persistent), name=receiver.context.path)
                task.add_done_callback(lambda _: self._on_end())
                self._receivers[id_] = task

    async def stop_receivers(self, ids: Iterable[str]) -> None:
        """Cancels receivers. One that does not end within a second is abandoned."""
        await cancel_and_wait([task for id_ in ids if (task := self._receivers.pop(id_, None))])

    def start_ticks(self, pipelines: Iterable[Pipeline]) -> None:
        """Calls `tick` of every processor at its interval."""
        self._ticks = [
            asyncio.create_task(pipeline.run_ticks(), name=f"service::pipelines::{pipeline.name}")
            for pipeline in pipelines
        ]

    async def stop_ticks(self) -> None:
        """Returns when no tick begins any more."""
        await cancel_and_wait(self._ticks)
        self._ticks = []

    async def stop(self) -> None:
        """Stops all tasks, the receivers first."""
        await self.stop_receivers(list(self._receivers))
        await self.stop_ticks()


_logger = logging.getLogger("otel_zernel.engine.service")


class _Exchange(NamedTuple):
    """The changes of one reload, with the new instances, which are not started."""

    settings: Settings
    changes: Difference
    starting: Definitions
    instances: Mapping[Place, Instance]
    measuring: Measuring


class Transition:
    """Exchanges the components of a graph. Receivers are stopped here, and started by `Work` afterwards."""

    def __init__(
        self, graph: Graph, work: Work, lifetimes: Lifetimes[Place], metering: Metering, longest_start: float
    ) -> None:
        """`longest_start` is the time in seconds that a component may need to start in a reload."""
        self._longest = longest_start
        self._graph = graph
        self._work = work
        self._lifetimes = lifetimes
        self._metering = metering
        self._completing: set[asyncio.Task[bool]] = set()
        self.lost = 0
        """Items that removed exporters gave up."""

    async def start(self, settings: Settings) -> None:
        """Starts everything, downstream first. Raises `CannotStart`; some components then run."""
        wanted = definitions(settings)
        measuring = self._metering.measuring(settings.telemetry)
        instances = self._graph.build(wanted, measuring)
        self._graph.share_memory(wanted)
        await self._metering.start(settings.telemetry)
        for place in wanted:
            await self._start(place, wanted[place], instances[place], measuring)
        self._graph.connect(settings)

    async def reload(self, settings: Settings, previous: Settings, stop: asyncio.Event) -> None:
        """Exchanges the instances that differ. Raises `CannotStart` if that fails; those of `previous` then run.

        The data of the others moves on while queues are drained, for at most `shutdown_timeout`, and no longer than
        until `stop` is set. It waits while instances are exchanged.
        """
        exchange = self._exchange(settings)
        _log(exchange.changes)
        await self._settle(exchange.changes, settings.shutdown_timeout, stop)
        HANDOVER.hold([place.path for place in exchange.changes.restarted if place.kind == "receivers"])
        await self._work.stop_receivers(place.id for place in exchange.changes.leaving if place.kind == "receivers")
        await self._work.stop_ticks()
        try:
            async with self._graph.held():
                await self._make_or_return(exchange, previous)
        finally:
            self._dismiss_deliveries()

    async def _make_or_return(self, exchange: "_Exchange", previous: Settings) -> None:
        try:
            await self._make(exchange)
        except CannotStart as error:
            _logger.error("Reload failed; returning to the previous configuration: %s", error)
            await self._make(self._exchange(previous), forced=True)
            raise

    def _exchange(self, settings: Settings) -> "_Exchange":
        """Constructs the new instances. Raises `CannotStart`; nothing has changed then."""
        wanted = definitions(settings)
        changes = difference(self._graph.running, wanted, self._graph.uses)
        starting = {place: wanted[place] for place in wanted if place in changes.starting}
        measuring = self._metering.measuring(settings.telemetry)
        return _Exchange(settings, changes, starting, self._graph.build(starting, measuring), measuring)

    async def _make(self, exchange: "_Exchange", *, forced: bool = False) -> None:
        """Exchanges the instances and connects them. Raises `CannotStart`, unless `forced`: it then does all it can."""
        settings = exchange.settings
        await self._leave(exchange.changes, settings)
        self._graph.share_memory(definitions(settings))
        with _logged() if forced else nullcontext():
            await self._metering.start(settings.telemetry)
        for place, definition in exchange.starting.items():
            with _logged() if forced else nullcontext():
                await self._start(place, definition, exchange.instances[place], exchange.measuring, self._longest)
        self._graph.connect(settings)

    async def _settle(self, changes: Difference, longest: float, stop: asyncio.Event) -> None:
        """The exporters that stop finish their running attempts; those that are removed also deliver their queues."""
        restarted = [self._delivery(place).settle() for place in changes.restarted if place.kind == "exporters"]
        removed = [self._delivery(place) for place in changes.removed if place.kind == "exporters"]
        for delivery in removed:
            if waiting := delivery.undelivered().total:
                path = delivery.exporter.context.path
                _logger.info("Delivering %d queued items of %s before its removal.", waiting, path)
        ending = [
            asyncio.create_task(coroutine) for coroutine in (*restarted, *(delivery.drain() for delivery in removed))
        ]
        await _finish(ending, longest, stop)

    async def _leave(self, changes: Difference, settings: Settings) -> None:
        """Flushes and leaves the instances that stop, upstream first, so that their ports and files are free."""
        leaving = {stage for place in changes.leaving if (stage := self._graph.stages.get(place))}
        for pipeline in self._graph.pipelines.values():
            self._complete(await pipeline.flush_held(leaving))
        processors = [place for place in changes.leaving if place.kind == "processors"]
        await asyncio.gather(*(self._lifetimes.close(place) for place in processors))
        exporters = [place for place in changes.leaving if place.kind == "exporters"]
        removed = [self._delivery(place) for place in exporters if place not in changes.restarted]
        await _finish([asyncio.create_task(delivery.drain()) for delivery in removed], LONGEST_END)
        await asyncio.gather(*(self._lifetimes.close(place) for place in exporters))
        for place in reversed([place for place in changes.leaving if place.kind == "extensions"]):
            await self._lifetimes.close(place)
        for place in changes.leaving:
            self._graph.release(place)
        await self._metering.stop(settings.telemetry)

    async def _start(
        self,
        place: Place,
        definition: Definition,
        instance: Instance,
        measuring: Measuring,
        longest: float | None = None,
    ) -> None:
        """Puts an instance into its place, and enters it if it has a lifetime. Raises `CannotStart`."""
        self._graph.adopt(place, definition, instance, measuring)
        try:
            if component := self._graph.with_lifetime(place):
                await self._lifetimes.open(place, component, place.path, longest)
        except CannotStart as error:
            self._graph.release(place)
            self._graph.health.report(place.path, str(error))
            raise

    def _delivery(self, place: Place) -> Delivery:
        return self._graph.deliveries[place.id]

    def _complete(self, passage: Passage) -> None:
        """Does not wait for exporters without a queue: those that restart get the batch afterwards."""
        completing = asyncio.create_task(passage.complete(), name="flushing")
        self._completing.add(completing)
        completing.add_done_callback(self._completing.discard)

    def _dismiss_deliveries(self) -> None:
        for id_, delivery in self._graph.take_unconnected().items():
            if stored := delivery.queue.stored().total:
                _logger.warning("Exporter %s was removed; %d items stay in its storage.", id_, stored)
            if lost := delivery.dismiss().total:
                _logger.error("Exporter %s was removed and could not deliver %d items.", id_, lost)
            self.lost += delivery.lost


@contextmanager
def _logged() -> Iterator[None]:
    """Logs a `CannotStart` inside instead of raising it."""
    try:
        yield
    except CannotStart as error:
        _logger.error("The previous configuration cannot start completely: %s", error)


def _log(changes: Difference) -> None:
    """A line for each fate. The log samples by template, so each has its own."""
    templates = {
        "added": "Reload adds %s.",
        "removed": "Reload removes %s.",
        "restarted": "Reload restarts %s.",
        "kept": "Reload keeps %s.",
    }
    for fate, names in changes.lines():
        _logger.info(templates[fate], names)


async def _finish(tasks: Iterable[asyncio.Task[None]], longest: float, stop: asyncio.Event | None = None) -> None:
    """Waits for the tasks, at most `longest` s, and no longer than until `stop` is set. Cancels the rest."""
    ending = [*tasks]
    if not ending:
        return
    ended = asyncio.ensure_future(asyncio.wait(ending))
    stopping = asyncio.ensure_future((stop or asyncio.Event()).wait())
    either: set[asyncio.Future[Any]] = {ended, stopping}
    await asyncio.wait(either, timeout=longest, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    stopping.cancel()
    await cancel_and_wait(ending)
