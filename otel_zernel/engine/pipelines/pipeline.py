"""The path of a batch: from a receiver's `emit` through the processors of its pipelines into the exporters' queues."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import BYTES_AT_ONCE, LONGEST_PREPARATION, Processor
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.pipelines.passage import FullQueues, Passage
from otel_zernel.engine.unbroken import Unbroken
from otel_zernel.errors import DecodeError
from otel_zernel.runtime.threads import ComputingThread
from otel_zernel.telemetry import ProcessorMetrics


@dataclass(slots=True, eq=False)
class Stage:
    """A processor in a pipeline. If it fails on a batch, the batch is dropped and counted, and the pipeline goes on."""

    processor: Processor
    metrics: ProcessorMetrics
    due: float | None = None
    """The monotonic time of the next tick. A stage that a reload keeps keeps its schedule."""
    thread: ComputingThread = field(init=False)
    """Only this processor works in it, so that no pipeline waits for the work of another."""
    prepares: bool = field(init=False)
    """Whether the processor has a `prepare` of its own."""

    def __post_init__(self) -> None:
        self.thread = ComputingThread(self.processor.context.path)
        self.prepares = type(self.processor).prepare is not Processor.prepare

    async def prepare(self, batch: Batch) -> None:
        """Lets the processor fetch what it needs for the batch. If that fails, it has to do without."""
        context = self.processor.context
        try:
            async with asyncio.timeout(LONGEST_PREPARATION):
                await self.processor.prepare(batch)
        except TimeoutError:
            context.logger.debug("The preparation of a batch took longer than %g s", LONGEST_PREPARATION)
        except Exception as error:
            context.logger.exception("The processor failed to prepare a batch: %r", error)

    async def process(self, batch: Batch, unbroken: Unbroken) -> Sequence[Batch]:
        count, at_once = batch.item_count, self.processor.items_at_once
        self.metrics.incoming(count)
        is_long = at_once is not None and (count > at_once or batch.byte_size > BYTES_AT_ONCE)
        in_thread = unbroken if is_long else None
        return await self._outputs(lambda: self.processor.process(batch), in_thread, count)

    async def tick(self, unbroken: Unbroken) -> Sequence[Batch]:
        clock, in_thread = self.processor.context.clock, None if self.processor.items_at_once is None else unbroken
        return await self._outputs(lambda: self.processor.tick(clock.time_ns()), in_thread)

    async def flush(self, unbroken: Unbroken) -> Sequence[Batch]:
        in_thread = None if self.processor.items_at_once is None else unbroken
        return await self._outputs(self.processor.flush, in_thread)

    async def _outputs(
        self, call: Callable[[], Iterable[Batch]], in_thread: Unbroken | None, at_stake: int = 0
    ) -> Sequence[Batch]:
        """The outputs of a call, up to its failure. `in_thread` awaits the thread; None for no thread."""
        outputs: list[Batch] = []

        def collect() -> None:
            outputs.extend(batch for batch in call() if batch.item_count)  # counting may take long

        try:
            await in_thread.wait(self.thread.run(collect)) if in_thread else collect()
        except DecodeError as error:
            context = self.processor.context
            context.logger.error("Dropped %d items: the received bytes are not valid OTLP: %s", at_stake, error)
            context.drop(at_stake, "undecodable")
        except Exception as error:
            context = self.processor.context
            context.logger.exception("The processor failed; dropping %d items: %r", at_stake, error)
            context.drop(at_stake, "processor_error")
        self.metrics.outgoing(sum(output.item_count for output in outputs))
        return outputs


class Pipeline:
    """A row of processors, and the exporters behind them.

    Pipelines that share a receiver or an exporter share `lock`. It is held while batches move through them: a processor
    that works in a thread is not called with another batch meanwhile, and a queue that had room for a batch still has
    it when the batch arrives. It is not held while a batch is written to a disk.
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
        self._emitting: set[asyncio.Task[None]] = set()

    def takers(self, signal: Signal) -> frozenset[Delivery]:
        """The exporters that may get data from a batch of this signal. A processor may turn it into another signal."""
        if signal not in self._signals:
            return frozenset()
        return frozenset(
            delivery for delivery in self.deliveries if self._stages or signal in delivery.exporter.signals
        )

    def plain_takers(self, signal: Signal) -> Sequence[Delivery] | None:
        """The exporters that get every batch of this signal as it is; None if a processor has to see it."""
        if signal not in self._signals:
            return ()
        return (
            None if self._stages else [delivery for delivery in self.deliveries if signal in delivery.exporter.signals]
        )

    def admit(self, batch: Batch) -> None:
        """Raises `Refused` if a processor does not accept the batch now."""
        if self._signals.intersection(batch.signals):
            for stage in self._stages:
                stage.processor.admit(batch)

    async def accept(self, batch: Batch, passage: Passage) -> None:
        """Runs an admitted batch through the processors and queues the output. The pipeline owns the batch."""
        await self._run([_only(batch, self._signals)], 0, passage)

    async def run_ticks(self) -> None:
        """Calls `tick` of each processor at its interval, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for position, stage in enumerate(self._stages):
                if stage.processor.interval is not None:
                    group.create_task(self._tick(stage, position))

    async def flush(self) -> None:
        """Queues the batches that the processors still hold, also in full queues."""
        for position, stage in enumerate(self._stages):
            await self._emit(stage.flush, position + 1, None)

    async def flush_held(self, leaving: Container[Stage]) -> Passage:
        """Queues the batches that these stages still hold. The caller holds `lock`, and completes the result."""
        passage = Passage()
        with passage:
            for position, stage in enumerate(self._stages):
                if stage in leaving:
                    await self._run(await stage.flush(passage.unbroken), position + 1, passage)
        return passage

    async def _tick(self, stage: Stage, position: int) -> None:
        clock, interval = stage.processor.context.clock, stage.processor.interval or 0.0
        while True:
            if stage.due is None:
                stage.due = clock.monotonic() + interval
            await clock.sleep(max(0.0, stage.due - clock.monotonic()))
            full = await self._full()
            stage.due = max(stage.due + interval, clock.monotonic())
            emitting = asyncio.create_task(self._emit(stage.tick, position + 1, full), name=f"tick of {self.name}")
            self._emitting.add(emitting)
            emitting.add_done_callback(self._emitting.discard)
            await asyncio.shield(emitting)  # a reload ends this loop, and must not lose the output of a tick

    async def _emit(
        self, call: Callable[[Unbroken], Awaitable[Sequence[Batch]]], position: int, full: FullQueues | None
    ) -> None:
        passage = Passage(full)
        async with self.lock:
            with passage:
                await self._run(await call(passage.unbroken), position, passage)
        await passage.complete()

    async def _full(self) -> FullQueues:
        """The full queues, which drop what they get.

        Waits while one holds back its source, or while no queue takes one of the signals.
        """
        while True:
            full = {
                delivery: signals
                for delivery in self.deliveries
                if (signals := delivery.full_signals() & self._signals)
            }
            holding = [delivery for delivery in full if delivery.durable or delivery.delays(paced=True)]
            taken = {signal for delivery in self.deliveries for signal in self._signals & delivery.exporter.signals}
            accepted = {
                signal
                for delivery in self.deliveries
                for signal in delivery.exporter.signals - full.get(delivery, frozenset())
            }
            if not holding and taken <= accepted:
                return full
            await next(iter(holding or full)).wait_for_room()

    async def _run(self, batches: Sequence[Batch], position: int, passage: Passage) -> None:
        """Runs batches through the stages from `position` on, one output of a processor after the other."""
        for batch in batches:
            if len(batches) > 1:  # together they may take long
                await passage.unbroken.wait(asyncio.sleep(0))
            if position < len(self._stages):
                await self._run_stage(self._stages[position], batch, position + 1, passage)
            else:
                await self._queue(batch, passage)

    async def _run_stage(self, stage: Stage, batch: Batch, next_position: int, passage: Passage) -> None:
        await _make_readable(batch, stage.processor.reads, passage)
        if stage.prepares:
            await passage.unbroken.wait(stage.prepare(batch))
        await self._run(await stage.process(batch, passage.unbroken), next_position, passage)

    async def _queue(self, batch: Batch, passage: Passage) -> None:
        """Queues each signal by itself, so that a retry after a failure of one signal does not repeat the other."""
        for delivery in self.deliveries:
            for signal in delivery.exporter.signals.intersection(batch.signals):
                part = _only(batch, frozenset({signal}))
                if delivery.exporter.prepares(part):
                    await self._prepare(part, delivery, passage)
                elif part.item_count:
                    passage.hand_over(part, delivery)

    async def _prepare(self, batch: Batch, delivery: Delivery, passage: Passage) -> None:
        """Queues what the exporter makes of the batch."""
        await _make_readable(batch, batch.signals, passage)
        dropped = passage.drops(batch, delivery)
        for prepared in await delivery.prepare(batch.copy(), passage.unbroken, dropped=dropped):
            if prepared.item_count:
                passage.hand_over(prepared, delivery)


async def _make_readable(batch: Batch, signals: Collection[Signal], passage: Passage) -> None:
    """Lets a component read the batch without holding the event loop for long."""
    if not batch.is_readable(signals):
        await passage.unbroken.wait(batch.make_readable(signals))


def _only(batch: Batch, signals: frozenset[Signal]) -> Batch:
    """The batch without the other signals: the batch itself if it has none of them, since a part of it is a copy."""
    return batch if signals.issuperset(batch.signals) else batch.only(signals)
