"""The delivery of batches to one exporter: queue, consumers, retries and timeout."""

import asyncio
import random
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from functools import reduce
from types import TracebackType
from typing import Self

from otel_zernel.batch import Batch, ItemCount
from otel_zernel.component import Exporter
from otel_zernel.delivery_config import LOCAL, RemoteExporterConfig, RetryConfig
from otel_zernel.engine.lifetime import cancel_and_wait, was_cancelled
from otel_zernel.engine.queue import MemoryQueue, Queue, Request, join_and_split
from otel_zernel.errors import Permanent, Retryable
from otel_zernel.telemetry import ExporterMetrics


def backoff(config: RetryConfig) -> Iterator[float]:
    """Seconds to wait before each repetition: exponential, randomized, with an upper limit."""
    interval = config.initial_interval
    while True:
        spread = config.randomization_factor * interval
        yield random.uniform(interval - spread, interval + spread)  # noqa: S311  # jitter, not a secret
        interval = min(interval * config.multiplier, config.max_interval)


class Delivery:
    """One exporter with its queue. Entering it enters the exporter and starts the consumers.

    Every batch that `put` or `send` accepts is delivered, or counted as lost.
    """

    def __init__(self, exporter: Exporter, metrics: ExporterMetrics, queue: Queue | None = None) -> None:
        """`queue` replaces the queue in memory. The entries that it already has are delivered first."""
        config: RemoteExporterConfig = exporter.config if exporter.delivery == "remote" else LOCAL
        self.exporter = exporter
        self.queue = MemoryQueue(config.sending_queue) if queue is None else queue
        self.blocks = config.sending_queue.block_on_overflow
        self.direct = not config.sending_queue.enabled
        """Whether the exporter has no queue: the pipeline then awaits `send`."""
        self.lost = 0
        """The number of items that were given up."""
        self._sending_queue = config.sending_queue
        self._retry = config.retry_on_failure
        self._timeout = config.timeout or None
        self._metrics = metrics
        self._logger = exporter.context.logger
        self._clock = exporter.context.clock
        self._in_flight: set[Request] = set()
        self._available = asyncio.Semaphore(len(self.queue))
        """One for each entry of the queue that is not leased."""
        self._gathering = asyncio.Lock()
        self._flush: asyncio.Timeout | None = None
        self._draining = asyncio.Event()
        self._moved = asyncio.Event()
        """Set when an entry leaves the queue or a request is settled."""
        self._consumers: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        metrics.watch_queue(self.queue)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.exporter)
        count = 0 if self.direct else self._sending_queue.num_consumers
        name = self.exporter.context.path
        self._consumers = [asyncio.create_task(self._consume(), name=name) for _ in range(count)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await cancel_and_wait(self._consumers)
        await self._stack.aclose()

    def has_room(self, batch: Batch) -> bool:
        """Whether the batch fits into the queue."""
        return self.direct or self.queue.has_room(batch)

    @property
    def is_full(self) -> bool:
        """Whether no batch fits into the queue."""
        return not self.direct and self.queue.is_full

    async def wait_for_room(self) -> None:
        """Returns when an entry has left the queue since the call. The room may still be too small."""
        self._moved.clear()
        await self._moved.wait()

    def put(self, batch: Batch) -> None:
        """Queues a batch. The output of a processor may exceed the capacity, since its input was admitted."""
        self.queue.put(batch)
        self._available.release()

    def count_refused(self, batch: Batch) -> None:
        """Counts a batch that did not fit."""
        self._metrics.enqueue_failed(batch)

    async def drain(self) -> None:
        """Returns when every queued batch is delivered or given up. Requests no longer wait for `min_size`."""
        self._draining.set()
        if self._flush and not self._flush.expired():
            self._flush.reschedule(0)
        while self.queue or self._in_flight:
            await self.wait_for_room()

    def undelivered(self) -> ItemCount:
        """The items that are queued or in flight."""
        in_flight = (request.batch.counts for request in self._in_flight)
        return reduce(ItemCount.plus, in_flight, self.queue.waiting())

    def send(self, batch: Batch) -> asyncio.Task[bool]:
        """Delivers a batch without the queue. The result is False if it was given up.

        A batch whose task is cancelled is counted as lost.
        """
        sending = asyncio.create_task(self._deliver(Request(batch)), name=self.exporter.context.path)
        sending.add_done_callback(lambda done: self.abandon(batch) if done.cancelled() else None)
        return sending

    def abandon(self, batch: Batch) -> None:
        """Counts a batch without a queue entry that was not delivered before the collector stopped."""
        self._give_up(batch, "the collector stopped before they were delivered")

    async def _consume(self) -> None:
        while True:
            async with self._gathering:
                requests = deque(await self._next_requests())
            try:
                while requests:
                    await self._deliver(requests[0])
                    requests.popleft()
            finally:
                self._give_back(requests)

    async def _deliver(self, request: Request) -> bool:
        self._in_flight.add(request)
        try:
            delivered = await self._send_until_settled(request.batch)
            request.acknowledge()
            return delivered
        finally:
            self._in_flight.discard(request)
            self._moved.set()

    async def _next_requests(self) -> list[Request]:
        """Leases the oldest entries, and joins and splits them as configured. The result is in flight."""
        leased: list[Request] = []
        try:
            await self._gather(leased)
        except asyncio.CancelledError:
            self._give_back(leased)
            raise
        requests = self._joined(leased)
        self._in_flight.difference_update(leased)
        self._in_flight.update(requests)
        self._moved.set()
        return requests

    async def _gather(self, leased: list[Request]) -> None:
        """Adds leased entries until they are large enough for one request, or `flush_timeout` has passed."""
        leased.append(await self._lease())
        batching = self._sending_queue.batch
        if batching is None:
            return
        items = leased[0].batch.item_count
        try:
            async with asyncio.timeout(0 if self._draining.is_set() else batching.flush_timeout) as self._flush:
                while items < batching.min_size:
                    leased.append(await self._lease())
                    items += leased[-1].batch.item_count
        except TimeoutError:
            pass
        finally:
            self._flush = None

    async def _lease(self) -> Request:
        await self._available.acquire()
        lease = self.queue.lease()
        request = Request(lease.batch, (lease,))
        self._in_flight.add(request)
        self._moved.set()
        return request

    def _joined(self, leased: list[Request]) -> list[Request]:
        batching = self._sending_queue.batch
        try:
            return join_and_split(leased, batching.max_size if batching else 0)
        except Exception as error:  # invalid OTLP costs these batches, not the consumer
            self._logger.exception("Cannot join %d queued batches into one request; dropping them", len(leased))
            for request in leased:
                self._give_up(request.batch, error)
                request.acknowledge()
            return []

    def _give_back(self, requests: Iterable[Request]) -> None:
        for request in reversed(list(requests)):
            self._in_flight.discard(request)
            for _ in range(request.give_back()):
                self._available.release()

    async def _send_until_settled(self, batch: Batch) -> bool:
        give_up_at = self._clock.monotonic() + (self._retry.max_elapsed_time or float("inf"))
        for delay in backoff(self._retry):
            try:
                await self._attempt(batch)
            except Retryable as error:
                wait = max(delay, error.after or 0.0)
                if not self._retry.enabled or self._clock.monotonic() + wait > give_up_at:
                    return self._give_up(batch, error)
                self._logger.warning("Export failed; retrying in %.1f s: %s", wait, error)
                await self._pause(wait)
            except Permanent as error:
                return self._give_up(batch, error)
            else:
                self._metrics.sent(batch)
                return True
        raise AssertionError("backoff never ends")

    async def _pause(self, seconds: float) -> None:
        """Sleeps. The start of draining ends the sleep early, for one more attempt before the shutdown timeout."""
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        draining = asyncio.ensure_future(self._draining.wait())
        either = {sleeping} if self._draining.is_set() else {sleeping, draining}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            draining.cancel()

    async def _attempt(self, batch: Batch) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self.exporter.export(batch)
        except TimeoutError as error:
            limit = f"no answer within {self._timeout:g} s" if self._timeout else "the exporter timed out"
            raise Retryable(str(error) or limit) from error
        except (Retryable, Permanent):
            raise
        except (Exception, asyncio.CancelledError) as error:  # an exporter's bug costs this batch, not the consumer
            if was_cancelled(error):
                raise
            self._logger.exception("The exporter raised an unexpected exception; dropping the batch")
            raise Permanent(f"{type(error).__name__}: {error}") from error

    def _give_up(self, batch: Batch, error: Exception | str) -> bool:
        self.lost += batch.item_count
        self._metrics.send_failed(batch)
        self._logger.error("Dropped %s: %s", batch.counts, error)
        return False
