"""Wiring: from a receiver's `emit` through the processors of each of its pipelines into the exporters' queues."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from otel_zernel.batch import Batch
from otel_zernel.component import Processor, Signal
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.yielding import Turns
from otel_zernel.errors import Refused, Rejected
from otel_zernel.telemetry import ProcessorMetrics, ReceiverMetrics


@dataclass(frozen=True, slots=True)
class Stage:
    """A processor in its place. A batch that breaks it is counted and dropped; the pipeline goes on."""

    processor: Processor
    metrics: ProcessorMetrics

    def process(self, batch: Batch) -> Iterator[Batch]:
        count = batch.item_count
        self.metrics.incoming(count)
        yield from self._guard(lambda: self.processor.process(batch), count)

    def tick(self) -> Iterator[Batch]:
        yield from self._guard(lambda: self.processor.tick(self.processor.context.clock.time_ns()))

    def flush(self) -> Iterator[Batch]:
        yield from self._guard(self.processor.flush)

    def _guard(self, call: Callable[[], Iterable[Batch]], at_stake: int = 0) -> Iterator[Batch]:
        try:
            for made in call():
                self.metrics.outgoing(made.item_count)
                yield made
        except Exception as error:
            context = self.processor.context
            context.logger.exception("The processor failed, %d items dropped: %r", at_stake, error)
            context.drop(at_stake, "processor_error")


Direct = list[tuple[Delivery, Batch]]
"""What exporters without queue have to send."""


class Pipeline:
    """Processors in a row, and the exporters behind them.

    `working` is one lock for all pipelines of a service: a processor that pauses in the middle of a batch is not called
    with another, and a batch for several pipelines is in all of them before the next comes.
    """

    def __init__(
        self,
        name: str,
        stages: Sequence[Stage],
        deliveries: Sequence[Delivery],
        signals: frozenset[Signal],
        working: asyncio.Lock,
    ) -> None:
        self.name = name
        self.working = working
        self.deliveries = tuple(deliveries)
        self._stages = tuple(stages)
        self._signals = signals

    @property
    def wanted(self) -> frozenset[Signal]:
        """Of the signals that it carries, those that one of its processors or exporters takes."""
        processors = (stage.processor.signals for stage in self._stages)
        exporters = (delivery.exporter.signals for delivery in self.deliveries)
        return self._signals.intersection(chain.from_iterable((*processors, *exporters)))

    async def accept(self, batch: Batch, turns: Turns) -> Direct:
        """Runs an admitted batch through and queues what comes out."""
        return await self._run([_only(batch, self._signals)], 0, turns)

    async def run_ticks(self) -> None:
        """Calls the processors that work by the clock, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for position, stage in enumerate(self._stages):
                if stage.processor.interval is not None:
                    group.create_task(self._tick(stage, position))

    async def flush(self) -> None:
        """Brings what the processors still hold into the queues."""
        for position, stage in enumerate(self._stages):
            await self._emit(stage.flush(), position + 1)

    async def _tick(self, stage: Stage, position: int) -> None:
        clock, interval = stage.processor.context.clock, stage.processor.interval or 0.0
        due = clock.monotonic() + interval
        while True:
            await clock.sleep(max(0.0, due - clock.monotonic()))
            due = max(due + interval, clock.monotonic())
            await self._room()
            await self._emit(stage.tick(), position + 1)

    async def _emit(self, batches: Iterable[Batch], position: int) -> None:
        async with self.working:
            with _whole(direct := []) as turns:
                direct += await self._run(batches, position, turns)
        await send_all(direct)

    async def _room(self) -> None:
        for delivery in self.deliveries:
            while not delivery.has_room(Batch()):
                await delivery.room()

    async def _run(self, batches: Iterable[Batch], position: int, turns: Turns) -> Direct:
        """Runs batches through the stages from `position` on; a processor is asked for one output at a time."""
        direct: Direct = []
        for batch in batches:
            if batch.item_count and position < len(self._stages):
                direct += await self._run(self._stages[position].process(batch), position + 1, turns)
            elif batch.item_count:
                direct += self._queue(batch)
            await turns.give()
        return direct

    def _queue(self, batch: Batch) -> Direct:
        """Queues each signal by itself: an exporter that fails on one must not repeat the other."""
        direct: Direct = []
        for delivery in self.deliveries:
            for signal in delivery.exporter.signals:
                wanted = _only(batch, frozenset({signal}))
                if wanted.item_count and delivery.direct:
                    direct.append((delivery, wanted))
                elif wanted.item_count:
                    delivery.put(wanted)
        return direct


def _only(batch: Batch, signals: frozenset[Signal]) -> Batch:
    return batch.only(metrics="metrics" in signals, spans="traces" in signals)


@contextmanager
def _whole(direct: Direct) -> Iterator[Turns]:
    """Turns during work that a cancellation does not break off; counts what then cannot be sent any more."""
    try:
        with Turns() as turns:
            yield turns
    except asyncio.CancelledError:
        for delivery, batch in direct:
            delivery.abandon(batch)
        raise


async def send_all(direct: Iterable[tuple[Delivery, Batch]]) -> bool:
    """Sends to the exporters that have no queue; whether all took it."""
    return all(await asyncio.gather(*(delivery.send(batch) for delivery, batch in direct)))


class Entrance:
    """A receiver's `emit`, into all of its pipelines.

    Every queue is asked for room before the first processor sees the batch: so it goes to all exporters or to none,
    and a batch that is offered again is new to processors that remember.
    """

    def __init__(self, pipelines: Sequence[Pipeline], metrics: ReceiverMetrics) -> None:
        self._pipelines = tuple(pipelines)
        self._deliveries = {delivery for pipeline in pipelines for delivery in pipeline.deliveries}
        self._metrics = metrics
        self.accepted_points = self.accepted_spans = 0

    async def __call__(self, batch: Batch) -> None:
        direct = await self._take(batch)
        if not await send_all(direct):
            raise Rejected("an exporter without queue gave the batch up")

    async def _take(self, batch: Batch) -> Direct:
        while True:
            await self._room(batch)
            async with self._pipelines[0].working:
                if not self._full(batch):
                    return await self._run(batch)

    async def _run(self, batch: Batch) -> Direct:
        self.accepted_points += batch.point_count
        self.accepted_spans += batch.span_count
        self._metrics.accepted(batch)
        direct: Direct = []
        with _whole(direct) as turns:
            for pipeline in self._pipelines:
                direct += await pipeline.accept(batch.copy(), turns)
        return direct

    def _full(self, batch: Batch) -> list[Delivery]:
        return [delivery for delivery in self._deliveries if not delivery.has_room(batch)]

    async def _room(self, batch: Batch) -> None:
        """Returns when every queue has room. Raises `Refused` for those that do not wait."""
        while full := self._full(batch):
            refusing = [delivery for delivery in full if not delivery.blocks]
            for delivery in refusing:
                delivery.refuse(batch)
            if refusing:
                self._metrics.refused(batch)
                raise Refused(
                    "sending queue is full: " + ", ".join(sorted(one.exporter.context.id for one in refusing))
                )
            await full[0].room()
