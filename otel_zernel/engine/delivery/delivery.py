"""The delivery of batches to one exporter: its queue, its consumers, and the rules for a full queue."""

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import reduce
from types import TracebackType
from typing import Self

from otel_zernel.batch import Batch, ItemCount
from otel_zernel.component import Exporter
from otel_zernel.delivery_config import LOCAL, RemoteExporterConfig
from otel_zernel.engine.delivery.consumers import Consumers
from otel_zernel.engine.delivery.losses import Losses
from otel_zernel.engine.delivery.progress import LONGEST_PAUSE
from otel_zernel.engine.delivery.sending import Sender
from otel_zernel.engine.queues import DurableQueue, MemoryQueue, Queue, Request, open_durable
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
        self._losses = Losses(exporter.context, metrics)
        self._sender = Sender(exporter, config)
        self._consumers = Consumers(sending_queue, exporter.context, self._sender, self._losses, metrics)
        self._stack = AsyncExitStack()
        self.queue = queue or MemoryQueue(sending_queue, exporter.context.clock, self._max_bytes)

    async def __aenter__(self) -> Self:
        try:
            if self.durable:
                self.queue = await open_durable(self.exporter.context, self._config, self._max_bytes)
            self._stack.push_async_callback(self.queue.close)
            self._stack.callback(self._metrics.watch_queue(self.queue))
            await self._stack.enter_async_context(self.exporter)
        except BaseException:
            await self._stack.aclose()
            raise
        self._consumers.start(self.queue, 0 if self.direct else self._config.num_consumers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._consumers.stop()
        await self._stack.aclose()

    @property
    def lost(self) -> int:
        """The number of items that were dropped or given up."""
        return self._losses.items

    def has_room(self, batch: Batch) -> bool:
        """Whether the batch fits into the queue."""
        return self.direct or self.queue.has_room(batch)

    @property
    def is_full(self) -> bool:
        """Whether no batch fits into the queue."""
        return not self.direct and self.queue.is_full

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
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_PAUSE):
                await self._consumers.wait_for_move()

    def put(self, batch: Batch) -> asyncio.Future[None] | None:
        """Queues a batch of one signal. It may exceed the capacity, since the processor's input was admitted.

        The result is done when a durable queue has made the batch safe. None if the queue is in memory.
        """
        return self.queue.put(batch)

    def drop(self, batch: Batch, *, counted: bool) -> None:
        """Counts a batch that the full queue does not take. `counted` if `count_refused` has counted it before."""
        self._losses.overflow(batch, counted=counted)

    def count_refused(self, batch: Batch) -> None:
        """Counts a batch that did not fit. It is not lost, because its source still has it."""
        self._metrics.enqueue_failed(batch)

    async def drain(self) -> None:
        """Returns when every queued batch is delivered or given up. Requests no longer wait for `min_size`."""
        await self._consumers.drain(self.queue)

    def undelivered(self) -> ItemCount:
        """The items that would end with the process: queued or in flight, and not on the disk."""
        if isinstance(self.queue, DurableQueue):
            return self.queue.unsafe()
        in_flight = (request.batch.counts for request in self._consumers.in_flight)
        return reduce(ItemCount.plus, in_flight, self.queue.waiting())

    def stored(self) -> ItemCount:
        """The undelivered items that are on the disk. They are delivered after the next start."""
        return self.queue.stored()

    def send(self, batch: Batch) -> asyncio.Task[bool]:
        """Delivers a batch without the queue. The result is False if it was given up.

        A batch whose task is cancelled is counted as lost.
        """
        sending = asyncio.create_task(self._consumers.deliver(Request(batch)), name=self.exporter.context.path)
        sending.add_done_callback(lambda done: self.abandon(batch) if done.cancelled() else None)
        return sending

    def abandon(self, batch: Batch) -> None:
        """Counts a batch without a queue entry that was not delivered before the collector stopped."""
        self._losses.abandoned(batch)
