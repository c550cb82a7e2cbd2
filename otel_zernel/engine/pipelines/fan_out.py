"""The admission of a receiver's batches into its pipelines."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from weakref import WeakKeyDictionary

from otel_zernel.batch import SIGNALS, Batch, ItemCount, Signal
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.pipelines.holding import HoldWatch
from otel_zernel.engine.pipelines.passage import FullQueues, Passage
from otel_zernel.engine.pipelines.pipeline import Pipeline
from otel_zernel.errors import Refused, Rejected
from otel_zernel.telemetry import ReceiverMetrics


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

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        metrics: Callable[[str], ReceiverMetrics],
        holding: HoldWatch | None = None,
    ) -> None:
        """`metrics` returns the receiver's metrics for one transport. `holding` learns when batches are held back."""
        self.connect(pipelines)
        self._metrics = metrics
        self._holding = holding or HoldWatch()
        self._refused: WeakKeyDictionary[Batch, set[Delivery]] = WeakKeyDictionary()
        """The refused batches that their sources still have, with the queues that have counted them."""
        self.accepted = ItemCount()

    def connect(self, pipelines: Sequence[Pipeline]) -> None:
        """Sends the next batches into these pipelines. Must be called while the locks of the former ones are held.

        A batch that waits for room in a former queue goes into the new pipelines after `Delivery.wake`.
        """
        self._pipelines = tuple(pipelines)
        self._takers = {
            signal: tuple(dict.fromkeys(taker for pipeline in pipelines for taker in pipeline.takers(signal)))
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
            if delivery.direct or delivery.durable or delivery.waiting_sources or not delivery.queue.has_room(batch):
                return False
            if delivery.exporter.prepares(batch):
                return False
        self._count_accepted(batch.counts, self._metrics(transport))
        for delivery in takers:
            delivery.queue.put(batch)
        return True

    async def __call__(self, batch: Batch, *, transport: str = "") -> None:
        await self._emit(batch, transport, paced=False)

    async def paced(self, batch: Batch, *, transport: str = "") -> None:
        """As the call, for a source that can wait: waits for room as long as the exporter makes progress."""
        await self._emit(batch, transport, paced=True)

    async def _emit(self, batch: Batch, transport: str, *, paced: bool) -> None:
        counts, metrics = batch.counts, self._metrics(transport)  # the pipelines may edit the batch
        passage = await self._admit(batch, metrics, paced=paced)
        try:
            is_complete = await passage.complete()
        except asyncio.CancelledError:
            self._count_accepted(counts, metrics)  # the exporters have it
            raise
        if not is_complete:
            metrics.refused.count(counts)
            raise Rejected("an exporter without a queue dropped the batch")
        self._count_accepted(counts, metrics)

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
            if busy.is_stuck:
                self._holding.held_back(f"waits for room in the sending queue of {busy.exporter.context.id}")
            await busy.wait_for_room()

    def _busy(self, batch: Batch, full: FullQueues, metrics: ReceiverMetrics, *, paced: bool) -> Delivery | None:
        """The full queue whose room the source waits for. Raises `Refused` if no queue must get the batch now."""
        if busy := next((taker for taker in full if taker.delays(paced=paced)), None):
            return busy
        takers = ((taker, signal) for signal in batch.signals for taker in self._takers[signal])
        everyone = all(signal in full.get(taker, ()) for taker, signal in takers)
        if refusing := [taker for taker in full if everyone or taker.durable]:
            self._count_refused(batch, metrics, refusing)
            self._holding.held_back(refusal := _refusal(refusing))
            raise Refused(refusal)
        return None

    async def _run(self, batch: Batch, full: FullQueues, metrics: ReceiverMetrics) -> Passage:
        self._admit_to_processors(batch, metrics)
        passage = Passage(self._dropping(batch, full), frozenset(self._refused.pop(batch, ())))
        counts = batch.counts
        copies = [batch.copy() for _ in self._pipelines[1:]]
        try:
            with passage:
                for pipeline in self._pipelines:
                    await pipeline.accept(copies.pop() if copies else batch, passage)
        except asyncio.CancelledError:
            self._count_accepted(counts, metrics)  # the pipelines finish it
            raise
        return passage

    def _count_accepted(self, counts: ItemCount, metrics: ReceiverMetrics) -> None:
        self.accepted = self.accepted.plus(counts)
        metrics.accepted.count(counts)
        if self._holding.is_holding:
            self._holding.accepted()

    def _admit_to_processors(self, batch: Batch, metrics: ReceiverMetrics) -> None:
        try:
            for pipeline in self._pipelines:
                pipeline.admit(batch)
        except Refused as refused:
            self._count_refused(batch, metrics, ())
            self._holding.held_back(str(refused))
            raise

    def _count_refused(self, batch: Batch, metrics: ReceiverMetrics, refusing: Iterable[Delivery]) -> None:
        """Counts a refused batch once, however often its source emits it."""
        if batch not in self._refused:
            metrics.refused(batch)
        counted = self._refused.setdefault(batch, set())
        for delivery in set(refusing) - counted:
            delivery.count_refused(batch)
            counted.add(delivery)

    def _full(self, batch: Batch) -> FullQueues:
        """The queues without room for a signal of the batch that they may get."""
        full: dict[Delivery, frozenset[Signal]] = {}
        for delivery in self._takers_of(batch):
            signals = delivery.full_signals(batch)
            if any(signal in signals and delivery in self._takers[signal] for signal in batch.signals):
                full[delivery] = signals
        return full

    def _dropping(self, batch: Batch, full: FullQueues) -> FullQueues:
        """The full queues, and those that are full for what a processor may make of the batch, in an outage."""
        stuck = (taker for taker in self._takers_of(batch) if not taker.durable and not taker.delays(paced=True))
        return {**{taker: taker.full_signals(batch) for taker in stuck}, **full}

    def _takers_of(self, batch: Batch) -> Iterable[Delivery]:
        return dict.fromkeys(taker for signal in batch.signals for taker in self._takers[signal])
