"""Wiring: from a receiver's `emit` through the processors of each of its pipelines into the exporters' queues."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from otel_zernel.batch import Batch
from otel_zernel.component import Processor, Signal
from otel_zernel.delivery import Delivery
from otel_zernel.errors import Refused, Rejected
from otel_zernel.telemetry import ProcessorMetrics, ReceiverMetrics


@dataclass(frozen=True, slots=True)
class Stage:
    """A processor in its place. A batch that breaks it is counted and dropped; the pipeline goes on."""

    processor: Processor
    metrics: ProcessorMetrics

    def process(self, batch: Batch) -> list[Batch]:
        count = batch.item_count
        self.metrics.incoming(count)
        return self._guard(lambda: self.processor.process(batch), count)

    def tick(self) -> list[Batch]:
        return self._guard(lambda: self.processor.tick(self.processor.context.clock.time_ns()))

    def flush(self) -> list[Batch]:
        return self._guard(self.processor.flush)

    def _guard(self, call: Callable[[], Iterable[Batch]], at_stake: int = 0) -> list[Batch]:
        try:
            made = list(call())
        except Exception as error:
            context = self.processor.context
            context.logger.exception("The processor failed, %d items dropped: %r", at_stake, error)
            context.drop(at_stake, "processor_error")
            return []
        self.metrics.outgoing(sum(batch.item_count for batch in made))
        return made


class Pipeline:
    """Processors in a row, and the exporters behind them."""

    def __init__(
        self, name: str, stages: Sequence[Stage], deliveries: Sequence[Delivery], signals: frozenset[Signal]
    ) -> None:
        self.name = name
        self.deliveries = tuple(deliveries)
        self._stages = tuple(stages)
        self._signals = signals

    def accept(self, batch: Batch) -> list[tuple[Delivery, Batch]]:
        """Runs an admitted batch through and queues what comes out; returns what exporters without queue must send."""
        wanted = _only(batch, self._signals)
        return self._queue(self._through(self._stages, [wanted])) if wanted.item_count else []

    async def run_ticks(self) -> None:
        """Calls the processors that work by the clock, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for position, stage in enumerate(self._stages):
                if stage.processor.interval is not None:
                    group.create_task(self._tick(stage, self._stages[position + 1 :]))

    async def flush(self) -> None:
        """Brings what the processors still hold into the queues."""
        for position, stage in enumerate(self._stages):
            await send_all(self._queue(self._through(self._stages[position + 1 :], stage.flush())))

    async def _tick(self, stage: Stage, rest: Sequence[Stage]) -> None:
        clock, interval = stage.processor.context.clock, stage.processor.interval or 0.0
        due = clock.monotonic() + interval
        while True:
            await clock.sleep(max(0.0, due - clock.monotonic()))
            due = max(due + interval, clock.monotonic())
            await self._room()
            await send_all(self._queue(self._through(rest, stage.tick())))

    async def _room(self) -> None:
        for delivery in self.deliveries:
            while not delivery.has_room(Batch()):
                await delivery.room()

    def _through(self, stages: Sequence[Stage], batches: list[Batch]) -> list[Batch]:
        for stage in stages:
            batches = [made for batch in batches for made in stage.process(batch)]
        return batches

    def _queue(self, batches: list[Batch]) -> list[tuple[Delivery, Batch]]:
        """Queues each signal by itself: an exporter that fails on one must not repeat the other."""
        direct: list[tuple[Delivery, Batch]] = []
        for batch in batches:
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
        try:
            await self._admit(batch)
        except Refused:
            self._metrics.refused(batch)
            raise
        self.accepted_points += batch.point_count
        self.accepted_spans += batch.span_count
        self._metrics.accepted(batch)
        direct = [sending for pipeline in self._pipelines for sending in pipeline.accept(batch.copy())]
        if not await send_all(direct):
            raise Rejected("an exporter without queue gave the batch up")

    async def _admit(self, batch: Batch) -> None:
        while full := [delivery for delivery in self._deliveries if not delivery.has_room(batch)]:
            refusing = [delivery for delivery in full if not delivery.blocks]
            for delivery in refusing:
                delivery.refuse(batch)
            if refusing:
                raise Refused(
                    "sending queue is full: " + ", ".join(sorted(one.exporter.context.id for one in refusing))
                )
            await full[0].room()
