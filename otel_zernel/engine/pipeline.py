"""The path of a batch: from a receiver's `emit` through the processors of its pipelines into the exporters' queues."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from otel_zernel.batch import Batch, ItemCount, Signal
from otel_zernel.component import PAUSE, Processor
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.yielding import Yielder
from otel_zernel.errors import DecodeError, Refused, Rejected
from otel_zernel.telemetry import ProcessorMetrics, ReceiverMetrics


@dataclass(frozen=True, slots=True)
class Stage:
    """A processor in a pipeline. If it fails on a batch, the batch is dropped and counted, and the pipeline goes on."""

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
            for output in call():
                if output is not PAUSE:
                    self.metrics.outgoing(output.item_count)
                yield output
        except DecodeError as error:
            context = self.processor.context
            context.logger.error("Dropped %d items: the received bytes are not valid OTLP: %s", at_stake, error)
            context.drop(at_stake, "undecodable")
        except Exception as error:
            context = self.processor.context
            context.logger.exception("The processor failed; dropping %d items: %r", at_stake, error)
            context.drop(at_stake, "processor_error")


DirectSends = list[tuple[Delivery, Batch]]
"""Batches for exporters without a queue."""


class Pipeline:
    """A row of processors, and the exporters behind them.

    Pipelines that share a receiver or an exporter share `lock`. It is held while batches move through them: a processor
    that yields `PAUSE` is not called with another batch meanwhile, and a queue that had room for a batch still has it
    when the batch arrives.
    """

    def __init__(
        self,
        name: str,
        stages: Sequence[Stage],
        deliveries: Sequence[Delivery],
        signals: frozenset[Signal],
        lock: asyncio.Lock,
    ) -> None:
        self.name = name
        self.lock = lock
        self.deliveries = tuple(deliveries)
        self._stages = tuple(stages)
        self._signals = signals

    @property
    def used_signals(self) -> frozenset[Signal]:
        """The signals that the pipeline carries and that at least one of its processors or exporters accepts."""
        processors = (stage.processor.signals for stage in self._stages)
        exporters = (delivery.exporter.signals for delivery in self.deliveries)
        return self._signals.intersection(chain.from_iterable((*processors, *exporters)))

    async def accept(self, batch: Batch, yielder: Yielder) -> DirectSends:
        """Runs an admitted batch through the processors and queues the output. The pipeline owns the batch."""
        return await self._run([_only(batch, self._signals)], 0, yielder)

    async def run_ticks(self) -> None:
        """Calls `tick` of each processor at its interval, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for position, stage in enumerate(self._stages):
                if stage.processor.interval is not None:
                    group.create_task(self._tick(stage, position))

    async def flush(self) -> None:
        """Queues the batches that the processors still hold."""
        for position, stage in enumerate(self._stages):
            await self._emit(stage.flush(), position + 1)

    async def _tick(self, stage: Stage, position: int) -> None:
        clock, interval = stage.processor.context.clock, stage.processor.interval or 0.0
        due = clock.monotonic() + interval
        while True:
            await clock.sleep(max(0.0, due - clock.monotonic()))
            due = max(due + interval, clock.monotonic())
            await self._wait_until_not_full()
            await self._emit(stage.tick(), position + 1)

    async def _emit(self, batches: Iterable[Batch], position: int) -> None:
        async with self.lock:
            with _uninterrupted(direct := []) as yielder:
                direct += await self._run(batches, position, yielder)
        await send_all(direct)

    async def _wait_until_not_full(self) -> None:
        for delivery in self.deliveries:
            while delivery.is_full:
                await delivery.wait_for_room()

    async def _run(self, batches: Iterable[Batch], position: int, yielder: Yielder) -> DirectSends:
        """Runs batches through the stages from `position` on, one output of a processor after the other."""
        direct: DirectSends = []
        for batch in batches:
            if batch is not PAUSE and batch.item_count:
                if position < len(self._stages):
                    direct += await self._run(self._stages[position].process(batch), position + 1, yielder)
                else:
                    direct += self._queue(batch)
            await yielder.yield_if_due()
        return direct

    def _queue(self, batch: Batch) -> DirectSends:
        """Queues each signal by itself, so that a retry after a failure of one signal does not repeat the other."""
        direct: DirectSends = []
        for delivery in self.deliveries:
            for signal in delivery.exporter.signals.intersection(batch.signals):
                part = _only(batch, frozenset({signal}))
                if part.item_count and delivery.direct:
                    direct.append((delivery, part))
                elif part.item_count:
                    delivery.put(part)
        return direct


def _only(batch: Batch, signals: frozenset[Signal]) -> Batch:
    """The batch without the other signals: the batch itself if it has none of them, since a part of it is a copy."""
    return batch if signals.issuperset(batch.signals) else batch.only(signals)


@contextmanager
def _uninterrupted(direct: DirectSends) -> Iterator[Yielder]:
    """A cancellation inside is raised at the end. The batches in `direct`, which are not sent then, are counted."""
    try:
        with Yielder() as yielder:
            yield yielder
    except asyncio.CancelledError:
        for delivery, batch in direct:
            delivery.abandon(batch)
        raise


async def send_all(direct: DirectSends) -> bool:
    """Sends batches to exporters without a queue. The result is whether all were delivered."""
    return all(await asyncio.gather(*(delivery.send(batch) for delivery, batch in direct)))


class FanOut:
    """The `emit` of a receiver, into all of its pipelines.

    A batch is admitted only if every queue has room, before the first processor gets it. So a batch goes to all
    exporters or to none, and a processor gets a batch only once even if the receiver emits it again.
    """

    def __init__(self, pipelines: Sequence[Pipeline], metrics: Callable[[str], ReceiverMetrics]) -> None:
        """`metrics` returns the receiver's metrics for one transport."""
        self._pipelines = tuple(pipelines)
        self._deliveries = {delivery for pipeline in pipelines for delivery in pipeline.deliveries}
        self._metrics = metrics
        self.accepted = ItemCount()

    async def __call__(self, batch: Batch, *, transport: str = "") -> None:
        direct = await self._admit(batch, self._metrics(transport))
        if not await send_all(direct):
            raise Rejected("an exporter without a queue dropped the batch")

    async def _admit(self, batch: Batch, metrics: ReceiverMetrics) -> DirectSends:
        while True:
            await self._wait_for_room(batch, metrics)
            async with self._pipelines[0].lock:
                if not self._full(batch):
                    return await self._run(batch, metrics)

    async def _run(self, batch: Batch, metrics: ReceiverMetrics) -> DirectSends:
        self.accepted = self.accepted.plus(batch.counts)
        metrics.accepted(batch)
        copies = [batch.copy() for _ in self._pipelines[1:]]
        direct: DirectSends = []
        with _uninterrupted(direct) as yielder:
            for pipeline in self._pipelines:
                direct += await pipeline.accept(copies.pop() if copies else batch, yielder)
        return direct

    def _full(self, batch: Batch) -> list[Delivery]:
        return [delivery for delivery in self._deliveries if not delivery.has_room(batch)]

    async def _wait_for_room(self, batch: Batch, metrics: ReceiverMetrics) -> None:
        """Returns when every queue has room. Raises `Refused` if a full queue has no `block_on_overflow`."""
        while full := self._full(batch):
            refusing = [delivery for delivery in full if not delivery.blocks]
            for delivery in refusing:
                delivery.count_refused(batch)
            if refusing:
                metrics.refused(batch)
                names = ", ".join(sorted(delivery.exporter.context.id for delivery in refusing))
                raise Refused(f"sending queue is full: {names}")
            await full[0].wait_for_room()
