"""The delivery of batches to one exporter: its queue, its consumers, and the rules for a full queue."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import reduce
from types import TracebackType
from typing import Self

from otel_zernel.batch import Batch, ItemCount, Signal
from otel_zernel.component import BYTES_AT_ONCE, ITEMS_AT_ONCE, Exporter
from otel_zernel.delivery_config import LOCAL, RemoteExporterConfig
from otel_zernel.engine.delivery.consumers import Consumers
from otel_zernel.engine.delivery.losses import Losses
from otel_zernel.engine.delivery.sending import LONGEST_PAUSE, Interrupted, Sender
from otel_zernel.engine.queues import DurableQueue, MemoryQueue, Queue, Request, UnsafeBatch, open_durable
from otel_zernel.engine.unbroken import Unbroken
from otel_zernel.errors import DecodeError
from otel_zernel.runtime.threads import compute
from otel_zernel.telemetry import ExporterMetrics


class Delivery:
    """One exporter with its queue. Entering it opens the queue, enters the exporter and starts the consumers.

    Every batch that `put` or `send` accepts is delivered, counted as lost, or still on the disk at the end.
    """

    def __init__(
        self, exporter: Exporter, metrics: ExporterMetrics, queue: Queue | None = None, max_bytes: int | None = None
    ) -> None:
        """`queue` replaces the queue in memory. The entries that it already has are delivered first.

        `max_bytes` limits the batches in the memory of a remote exporter's queue, if the configuration does not.
        """
        self.waiting_sources = 0
        """The calls of `wait_for_room`. Room belongs to them first."""
        self.losses: dict[str, ItemCount] = {}
        """The items that this exporter and its predecessors dropped or gave up, by reason."""
        self._dismissed = False
        self._restarting = False
        """Whether another exporter is to continue with the queue."""
        self._homeless: list[UnsafeBatch] = []
        """Batches that the former queue could not store. The next queue gets them."""
        self._entered = asyncio.Event()
        """Set while batches without a queue entry can be sent."""
        self._stack = AsyncExitStack()
        self._assume(exporter, metrics, max_bytes)
        self._dropped_before = self._dropped()
        self.queue = queue or self._memory_queue()

    def _assume(self, exporter: Exporter, metrics: ExporterMetrics, max_bytes: int | None) -> None:
        """Sets everything that belongs to this exporter and its configuration."""
        self._local = exporter.delivery == "local"
        config: RemoteExporterConfig = LOCAL if self._local else exporter.config
        sending_queue = config.sending_queue
        self.exporter = exporter
        self.direct = not sending_queue.enabled
        """Whether the exporter has no queue: the pipeline then awaits `send`."""
        self.durable = sending_queue.storage is not None
        self._config = sending_queue
        self._max_bytes = sending_queue.max_bytes or (None if self._local else max_bytes)
        self._metrics = metrics
        self._losses = Losses(exporter.context, metrics, self.losses)
        self._sender = Sender(exporter, config, lambda: self.undelivered().plus(self.queue.stored()))
        self.consumers = Consumers(
            sending_queue, exporter.context, self._sender, self._losses, metrics, in_order=exporter.in_order
        )

    def _memory_queue(self) -> MemoryQueue:
        return MemoryQueue(self._config, self.exporter.context.clock, self._max_bytes)

    async def __aenter__(self) -> Self:
        former = self.queue
        try:
            if self.durable:
                self.queue = await open_durable(self.exporter.context, self._config, self._max_bytes)
            self._stack.push_async_callback(self.queue.close)
            if not self.direct:
                self._stack.callback(self._metrics.watch_queue(self.queue, self.consumers.in_flight))
            context = self.exporter.context
            self._stack.callback(context.health.show_queue(context.id, self.queue))
            self._stack.push_async_exit(self.exporter)  # left even if it cannot start: it may have opened something
            await self.exporter.__aenter__()
        except BaseException:
            await self._stack.aclose()
            self.queue = former
            raise
        self._take_over(former)
        self.consumers.start(self.queue, 0 if self.direct and not self.queue else self._config.num_consumers)
        self._entered.set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered.clear()
        await self.consumers.stop()
        await self._stack.aclose()
        if isinstance(self.queue, DurableQueue):
            self._keep_unsafe(self.queue.unsafe_batches())

    def _keep_unsafe(self, batches: list[UnsafeBatch]) -> None:
        """Keeps the batches that the closed queue could not store. If nobody continues, their sources stop waiting."""
        if self._restarting:
            self._homeless += batches
            return
        for batch in batches:
            batch.safe.cancel()

    def _take_over(self, former: Queue) -> None:
        """Queues the batches of the former queue."""
        if self.queue is not former:
            self.queue.take_over(former)
        for entry in self._homeless:
            entry.follow(self.queue.put(entry.batch))
        self._homeless = []

    async def settle(self) -> None:
        """Prepares to leave the exporter in a reload: returns when its running attempts have ended.

        The queue keeps the batches that they did not deliver, and accepts others.
        """
        self._entered.clear()
        self._restarting = True
        await self.consumers.settle()

    def replace(self, exporter: Exporter, metrics: ExporterMetrics, max_bytes: int | None) -> None:
        """Another exporter continues with the queue, once this delivery is entered again. It must not be entered now.

        Batches on the disk stay there if the new queue is in memory, until the exporter has this storage again.
        """
        config, limit = self._config, self._max_bytes
        self._restarting = False
        self._assume(exporter, metrics, max_bytes)
        former = self.queue
        if isinstance(former, DurableQueue):
            self.queue = self._memory_queue()
        elif config != self._config or limit != self._max_bytes:
            self.queue = self._memory_queue()
            self.queue.take_over(former)

    def share_memory(self, max_bytes: int) -> None:
        """Changes the limit of the batches in memory, unless the configuration sets it. Local exporters have none."""
        if not self._local and not self._config.max_bytes:
            self._max_bytes = max_bytes
            self.queue.limit_memory(max_bytes)

    def dismiss(self) -> ItemCount:
        """Ends this delivery, because a reload removed its exporter. The result is counted as lost."""
        lost = self.undelivered()
        self._dismissed = True
        self._entered.set()
        self.consumers.wake()
        self._losses.removed(lost)
        return lost

    @property
    def lost(self) -> int:
        """The number of items that were dropped or given up."""
        return sum(count.total for count in self.losses.values()) + self.rejected().total()

    def rejected(self) -> Counter[str]:
        """The items that a remote exporter dropped itself, by reason: the server rejected them, or cannot take them."""
        if self._local:
            return Counter()
        by_delivery = Counter({reason: count.total for reason, count in self.losses.items()})
        return self._dropped() - self._dropped_before - by_delivery

    def _dropped(self) -> Counter[str]:
        """All items that this exporter, its delivery and its predecessors have dropped, without repeated ones."""
        context = self.exporter.context
        return context.health.lost_by(context.path)

    @property
    def is_stuck(self) -> bool:
        """Whether the exporter makes no progress."""
        return self._sender.progress.is_stuck

    @property
    def problem(self) -> str | None:
        """Why the exporter delivers nothing at the moment."""
        outage = self._sender.outages.outage
        return outage.reason if outage else None

    def full_signals(self, batch: Batch | None = None) -> frozenset[Signal]:
        """The signals that do not fit into the queue: those of the batch, and of the others not even the smallest."""
        return frozenset() if self.direct else self.queue.full_signals(batch)

    def delays(self, *, paced: bool) -> bool:
        """Whether a source waits for room in the full queue, instead of being refused or losing the batch.

        `paced` sources can wait. They, and every source of a local exporter, wait as long as it makes progress.
        """
        if self._config.block_on_overflow:
            return True
        return (paced or self._local) and not self._sender.progress.is_stuck and self.queue.problem is None

    async def wait_for_room(self) -> None:
        """Returns when an entry has left the queue since the call, but no later than the exporter counts as stuck.

        The room may still be too small.
        """
        self.waiting_sources += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_PAUSE):
                    await self.consumers.wait_for_move()
        finally:
            self.waiting_sources -= 1

    async def prepare(self, batch: Batch, unbroken: Unbroken, *, dropped: bool) -> Sequence[Batch]:
        """The batches to hand over in place of this one. If the exporter fails, the batch is lost."""
        counts = batch.counts

        def prepared() -> list[Batch]:
            return list(self.exporter.prepare(batch, dropped=dropped))

        is_long = counts.total > ITEMS_AT_ONCE or batch.byte_size > BYTES_AT_ONCE
        try:
            return await unbroken.wait(compute(prepared)) if is_long else prepared()
        except DecodeError as error:
            self._losses.undecodable(counts, error)
        except Exception as error:
            self._losses.unprepared(counts)
            context = self.exporter.context
            context.logger.exception("Dropped %s: the exporter failed before they were queued: %r", counts, error)
        return ()

    def drop(self, batch: Batch, *, counted: bool) -> None:
        """Counts a batch that the full queue does not take. `counted` if `count_refused` has counted it before."""
        self._losses.overflow(batch, counted=counted)

    def count_refused(self, batch: Batch) -> None:
        """Counts a batch that did not fit. It is not lost, because its source still has it."""
        self._metrics.enqueue_failed(batch)

    async def drain(self) -> None:
        """Returns when every queued batch is delivered or given up. Requests no longer wait for `min_size`.

        Also returns if the exporter fails and every batch is on the disk, where it stays for the next start.
        """
        await self.consumers.drain(self.queue, self._may_stop_draining)

    def _may_stop_draining(self) -> bool:
        return self.durable and not self.undelivered().total and self._sender.progress.is_hopeless

    def undelivered(self) -> ItemCount:
        """The items that would end with the process: queued or in flight, and not on the disk."""
        if isinstance(self.queue, DurableQueue):
            return self.queue.unsafe()
        homeless = (entry.batch.counts for entry in self._homeless)
        in_flight = (request.batch.counts for request in self.consumers.in_flight)
        return reduce(ItemCount.plus, (*in_flight, *homeless), self.queue.waiting())

    def send(self, batch: Batch) -> asyncio.Task[bool]:
        """Delivers a batch without the queue. The result is False if it was given up.

        A batch whose task is cancelled is counted as lost.
        """
        sending = asyncio.create_task(self._send(batch), name=self.exporter.context.path)
        sending.add_done_callback(lambda done: self.abandon(batch) if done.cancelled() else None)
        return sending

    async def _send(self, batch: Batch) -> bool:
        while True:
            await self._entered.wait()
            if self._dismissed:
                self._losses.abandoned(batch)
                return False
            with suppress(Interrupted):
                return await self.consumers.deliver(Request(batch))
            if self._sender.is_out_of_time:
                self._losses.abandoned(batch)
                return False

    def abandon(self, batch: Batch) -> None:
        """Counts a batch without a queue entry that was not delivered before the collector stopped."""
        self._losses.abandoned(batch)
