"""The path of a batch: from a receiver's `emit` through the processors of its pipelines into the exporters' queues."""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from weakref import WeakKeyDictionary

from otel_zernel.batch import SIGNALS, Batch, ItemCount, Signal
from otel_zernel.component import PAUSE, Processor
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.passage import Passage
from otel_zernel.errors import DecodeError, Refused, Rejected
from otel_zernel.telemetry import ProcessorMetrics, ReceiverMetrics


@dataclass(slots=True, eq=False)
class Stage:
    """A processor in a pipeline. If it fails on a batch, the batch is dropped and counted, and the pipeline goes on."""

    processor: Processor
    metrics: ProcessorMetrics
    due: float | None = None
    """The monotonic time of the next tick. A stage that a reload keeps keeps its schedule."""

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


class Pipeline:
    """A row of processors, and the exporters behind them.

    Pipelines that share a receiver or an exporter share `lock`. It is held while batches move through them: a processor
    that yields `PAUSE` is not called with another batch meanwhile, and a queue that had room for a batch still has it
    when the batch arrives. It is not held while a batch is written to a disk.
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

    @property
    def used_signals(self) -> frozenset[Signal]:
        """The signals that the pipeline carries and that at least one of its processors or exporters accepts."""
        processors = (stage.processor.signals for stage in self._stages)
        exporters = (delivery.exporter.signals for delivery in self.deliveries)
        return self._signals.intersection(chain.from_iterable((*processors, *exporters)))

    def takers(self, signal: Signal) -> frozenset[Delivery]:
        """The exporters that may get data from a batch of this signal. A processor may turn it into another signal."""
        if signal not in self._signals:
            return frozenset()
        return frozenset(one for one in self.deliveries if self._stages or signal in one.exporter.signals)

    def plain_takers(self, signal: Signal) -> Sequence[Delivery] | None:
        """The exporters that get every batch of this signal as it is; None if a processor has to see it."""
        if signal not in self._signals:
            return ()
        return None if self._stages else [one for one in self.deliveries if signal in one.exporter.signals]

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
            await self._emit(stage.flush(), position + 1, frozenset())

    async def flush_held(self, leaving: Container[Stage]) -> Passage:
        """Queues the batches that these stages still hold. The caller holds `lock`, and completes the result."""
        passage = Passage()
        with passage:
            for position, stage in enumerate(self._stages):
                if stage in leaving:
                    await self._run(stage.flush(), position + 1, passage)
        return passage

    async def _tick(self, stage: Stage, position: int) -> None:
        clock, interval = stage.processor.context.clock, stage.processor.interval or 0.0
        while True:
            if stage.due is None:
                stage.due = clock.monotonic() + interval
            await clock.sleep(max(0.0, stage.due - clock.monotonic()))
            full = await self._full()
            stage.due = max(stage.due + interval, clock.monotonic())
            emitting = asyncio.create_task(self._emit(stage.tick(), position + 1, full), name=f"tick of {self.name}")
            self._emitting.add(emitting)
            emitting.add_done_callback(self._emitting.discard)
            await asyncio.shield(emitting)  # a reload ends this loop, and must not lose the output of a tick

    async def _emit(self, batches: Iterable[Batch], position: int, full: frozenset[Delivery]) -> None:
        passage = Passage(full)
        async with self.lock:
            with passage:
                await self._run(batches, position, passage)
        await passage.complete()

    async def _full(self) -> frozenset[Delivery]:
        """The full queues, which drop what they get. Waits while one holds back its source, or if all are full."""
        while True:
            full = frozenset(delivery for delivery in self.deliveries if delivery.is_full)
            holding = [delivery for delivery in full if delivery.durable or delivery.delays(paced=True)]
            if not holding and (not full or full != frozenset(self.deliveries)):
                return full
            await next(iter(holding or full)).wait_for_room()

    async def _run(self, batches: Iterable[Batch], position: int, passage: Passage) -> None:
        """Runs batches through the stages from `position` on, one output of a processor after the other."""
        for batch in batches:
            if batch is not PAUSE and batch.item_count:
                if position < len(self._stages):
                    await self._run(self._stages[position].process(batch), position + 1, passage)
                else:
                    await self._queue(batch, passage)
            await passage.yielder.yield_if_due()

    async def _queue(self, batch: Batch, passage: Passage) -> None:
        """Queues each signal by itself, so that a retry after a failure of one signal does not repeat the other."""
        for delivery in self.deliveries:
            for signal in delivery.exporter.signals.intersection(batch.signals):
                part = _only(batch, frozenset({signal}))
                if delivery.prepares(part):
                    await self._prepare(part, delivery, passage)
                elif part.item_count:
                    passage.hand_over(part, delivery)

    async def _prepare(self, batch: Batch, delivery: Delivery, passage: Passage) -> None:
        """Queues what the exporter makes of the batch."""
        for prepared in delivery.prepare(batch.copy(), dropped=passage.drops(delivery)):
            if prepared is PAUSE:
                await passage.yielder.yield_if_due()
            elif prepared.item_count:
                passage.hand_over(prepared, delivery)


def _only(batch: Batch, signals: frozenset[Signal]) -> Batch:
    """The batch without the other signals: the batch itself if it has none of them, since a part of it is a copy."""
    return batch if signals.issuperset(batch.signals) else batch.only(signals)


def _refusal(refusing: Sequence[Delivery]) -> str:
    """Why the queues accept nothing now."""
    names = ", ".join(sorted(delivery.exporter.context.id for delivery in refusing))
    if problem := next((delivery.queue.problem for delivery in refusing if delivery.queue.problem), None):
        return f"{names} cannot store batches: {problem}"
    return f"sending queue is full: {names}"


class FanOut:
    """Admission of the batches of one receiver. It happens before the first processor gets the batch.

    A full queue in memory drops the batch; the other exporters get it. A durable queue, and one with
    `block_on_overflow`, holds it back from all. If no queue takes it, it is refused, so that its source keeps it. A
    processor gets a batch only once, even if the receiver emits it again.
    """

    def __init__(self, pipelines: Sequence[Pipeline], metrics: Callable[[str], ReceiverMetrics]) -> None:
        """`metrics` returns the receiver's metrics for one transport."""
        self.connect(pipelines)
        self._metrics = metrics
        self._refused: WeakKeyDictionary[Batch, set[Delivery]] = WeakKeyDictionary()
        """The refused batches that their sources still have, with the queues that have counted them."""
        self.accepted = ItemCount()

    def connect(self, pipelines: Sequence[Pipeline]) -> None:
        """Sends the next batches into these pipelines. Must be called while the locks of the former ones are held.

        A batch that waits for room in a former queue goes into the new pipelines after `Delivery.wake`.
        """
        self._pipelines = tuple(pipelines)
        self._takers = {
            signal: tuple(dict.fromkeys(one for pipeline in pipelines for one in pipeline.takers(signal)))
            for signal in SIGNALS
        }
        """The exporters that may get data from a batch of this signal."""
        self._plain_takers = {signal: self._plain_takers_of(signal) for signal in SIGNALS}

    def _plain_takers_of(self, signal: Signal) -> Sequence[Delivery]:
        """The exporters that get every batch of this signal as it is. Empty if a processor has to see it."""
        takers: list[Delivery] = []
        for pipeline in self._pipelines:
            plain = pipeline.plain_takers(signal)
            if plain is None:
                return ()
            takers += plain
        return takers

    def at_once(self, batch: Batch, *, transport: str = "") -> bool:
        """Accepts the batch if that needs neither a processor nor waiting; `ImmediateEmit` has the promise."""
        signals = batch.signals
        if len(signals) != 1 or self._refused or self._pipelines[0].lock.locked():
            return False
        takers = self._plain_takers[signals[0]]
        if not takers:
            return False
        for delivery in takers:
            if delivery.direct or delivery.durable or delivery.waiting_sources or not delivery.has_room(batch):
                return False
            if delivery.prepares(batch):
                return False
        self._count_accepted(batch, self._metrics(transport))
        for delivery in takers:
            delivery.put(batch)
        return True

    async def __call__(self, batch: Batch, *, transport: str = "") -> None:
        await self._emit(batch, transport, paced=False)

    async def paced(self, batch: Batch, *, transport: str = "") -> None:
        """As the call, for a source that can wait: waits for room as long as the exporter makes progress."""
        await self._emit(batch, transport, paced=True)

    async def _emit(self, batch: Batch, transport: str, *, paced: bool) -> None:
        passage = await self._admit(batch, self._metrics(transport), paced=paced)
        if not await passage.complete():
            raise Rejected("an exporter without a queue dropped the batch")

    async def _admit(self, batch: Batch, metrics: ReceiverMetrics, *, paced: bool) -> Passage:
        while True:
            lock = self._pipelines[0].lock
            async with lock:
                if lock is not self._pipelines[0].lock:  # a reload has connected other pipelines
                    continue
                full = self._full(batch)
                busy = self._busy(batch, full, metrics, paced=paced) if full else None
                if not busy:
                    return await self._run(batch, full, metrics)
            await busy.wait_for_room()

    def _busy(
        self, batch: Batch, full: frozenset[Delivery], metrics: ReceiverMetrics, *, paced: bool
    ) -> Delivery | None:
        """The full queue whose room the source waits for. Raises `Refused` if no queue must get the batch now."""
        if busy := next((one for one in full if one.delays(paced=paced)), None):
            return busy
        everyone = full.issuperset(self._takers_of(batch))
        if refusing := [one for one in full if everyone or one.durable]:
            self._count_refused(batch, metrics, refusing)
            raise Refused(_refusal(refusing))
        return None

    async def _run(self, batch: Batch, full: frozenset[Delivery], metrics: ReceiverMetrics) -> Passage:
        self._admit_to_processors(batch, metrics)
        passage = Passage(full, frozenset(self._refused.pop(batch, ())))
        self._count_accepted(batch, metrics)
        copies = [batch.copy() for _ in self._pipelines[1:]]
        with passage:
            for pipeline in self._pipelines:
                await pipeline.accept(copies.pop() if copies else batch, passage)
        return passage

    def _count_accepted(self, batch: Batch, metrics: ReceiverMetrics) -> None:
        self.accepted = self.accepted.plus(batch.counts)
        metrics.accepted(batch)

    def _admit_to_processors(self, batch: Batch, metrics: ReceiverMetrics) -> None:
        try:
            for pipeline in self._pipelines:
                pipeline.admit(batch)
        except Refused:
            self._count_refused(batch, metrics, ())
            raise

    def _count_refused(self, batch: Batch, metrics: ReceiverMetrics, refusing: Iterable[Delivery]) -> None:
        """Counts a refused batch once, however often its source emits it."""
        if batch not in self._refused:
            metrics.refused(batch)
        counted = self._refused.setdefault(batch, set())
        for delivery in set(refusing) - counted:
            delivery.count_refused(batch)
            counted.add(delivery)

    def _takers_of(self, batch: Batch) -> Iterator[Delivery]:
        return chain.from_iterable(self._takers[signal] for signal in batch.signals)

    def _full(self, batch: Batch) -> frozenset[Delivery]:
        return frozenset(one for one in self._takers_of(batch) if not one.has_room(batch))
