"""One exporter's queue, retry and timeout, with the Collector's names and defaults (exporterhelper)."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from otel_zernel.batch import Batch
from otel_zernel.component import ComponentConfig, Exporter
from otel_zernel.engine.lifetime import end, was_cancelled
from otel_zernel.errors import Permanent, Retryable
from otel_zernel.telemetry import ExporterMetrics
from otel_zernel.types import Duration, PositiveDuration, Ratio

Sizer = Literal["requests", "items", "bytes"]
Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]


class BatchConfig(ComponentConfig):
    """How queued batches are joined into one request."""

    flush_timeout: PositiveDuration = 0.2
    """The longest a batch waits for others."""
    min_size: Count = 8192
    """A request is sent once it has this many items."""
    max_size: Count = 0
    """Larger ones are split; 0 for no limit."""
    sizer: Literal["items"] = "items"

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.max_size and self.max_size < self.min_size:
            raise ValueError(f"max_size ({self.max_size}) must not be less than min_size ({self.min_size})")
        return self


class SendingQueue(ComponentConfig):
    """The queue between the pipeline and the exporter's consumers."""

    enabled: bool = True
    num_consumers: PositiveCount = 10
    queue_size: PositiveCount = 1000
    sizer: Sizer = "requests"
    block_on_overflow: bool = False
    """Wait for room in place of refusing."""
    storage: None = None
    """Reserved for a durable queue."""
    batch: BatchConfig | None = None


class RetryOnFailure(ComponentConfig):
    """When a failed attempt is repeated."""

    enabled: bool = True
    initial_interval: PositiveDuration = 5.0
    multiplier: Annotated[float, Field(ge=1)] = 1.5
    randomization_factor: Ratio = 0.5
    max_interval: PositiveDuration = 30.0
    max_elapsed_time: Duration = 300.0
    """Give up and drop after this long; 0 for never."""


class LocalExporterConfig(ComponentConfig):
    """An exporter that stays on this machine: a short queue with one consumer keeps the order and the memory."""


class RemoteExporterConfig(ComponentConfig):
    """An exporter that sends to somebody: queue, retry and timeout are the user's to set."""

    timeout: Duration = 5.0
    """Seconds for one attempt; 0 for no limit."""
    sending_queue: SendingQueue = SendingQueue()
    retry_on_failure: RetryOnFailure = RetryOnFailure()


LOCAL = RemoteExporterConfig(
    timeout=0.0,
    sending_queue=SendingQueue.model_construct(num_consumers=1, queue_size=16),
    retry_on_failure=RetryOnFailure.model_construct(initial_interval=1.0, max_elapsed_time=0.0),
)
"""How batches are delivered to a `LocalExporterConfig`'s exporter: in order, and for ever if a disk is full."""

_SIZERS: dict[Sizer, Callable[[Batch], int]] = {
    "requests": lambda batch: 1,
    "items": lambda batch: batch.item_count,
    "bytes": lambda batch: batch.byte_size,
}


class Queue:
    """Batches waiting for one exporter: all of the logic, none of the waiting."""

    def __init__(self, config: SendingQueue) -> None:
        self.capacity = config.queue_size
        self.size = 0
        self._size_of = _SIZERS[config.sizer]
        self._waiting: deque[Batch] = deque()

    def has_room(self, batch: Batch) -> bool:
        """Whether the batch fits. An empty queue takes any batch, so that one larger than the queue is not stuck."""
        return not self._waiting or self.size + self._size_of(batch) <= self.capacity

    def put(self, batch: Batch) -> None:
        self._waiting.append(batch)
        self.size += self._size_of(batch)

    def take(self) -> Batch:
        """The oldest batch. Raises `IndexError` if there is none."""
        batch = self._waiting.popleft()
        self.size -= self._size_of(batch)
        return batch

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._waiting)


def backoff(config: RetryOnFailure) -> Iterator[float]:
    """Seconds to wait before each new attempt: exponential, randomised, bounded."""
    interval = config.initial_interval
    while True:
        spread = config.randomization_factor * interval
        yield random.uniform(interval - spread, interval + spread)  # noqa: S311  # jitter, not a secret
        interval = min(interval * config.multiplier, config.max_interval)


class Delivery:
    """One exporter with its queue. Entering it enters the exporter and starts the consumers."""

    def __init__(self, exporter: Exporter, metrics: ExporterMetrics) -> None:
        config = exporter.config if isinstance(exporter.config, RemoteExporterConfig) else LOCAL
        self.exporter = exporter
        self.queue = Queue(config.sending_queue)
        self.blocks = config.sending_queue.block_on_overflow
        self.direct = not config.sending_queue.enabled
        """No queue: whoever has a batch awaits `send`."""
        self.lost = 0
        """Items that were given up for good."""
        self._sending_queue = config.sending_queue
        self._retry = config.retry_on_failure
        self._timeout = config.timeout or None
        self._metrics = metrics
        self._logger = exporter.context.logger
        self._clock = exporter.context.clock
        self._in_flight: set[Batch] = set()
        self._entries = asyncio.Semaphore(0)
        self._gathering = asyncio.Lock()
        self._flush: asyncio.Timeout | None = None
        self._draining = asyncio.Event()
        self._moved = asyncio.Event()
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
        await end(self._consumers)
        await self._stack.aclose()

    def has_room(self, batch: Batch) -> bool:
        """Whether `put` may be called with the batch."""
        return self.direct or self.queue.has_room(batch)

    async def room(self) -> None:
        """Returns when something has left the queue since the call."""
        self._moved.clear()
        await self._moved.wait()

    def put(self, batch: Batch) -> None:
        """Queues a batch. What a processor makes of an admitted batch may exceed the queue a little."""
        self.queue.put(batch)
        self._entries.release()

    def refuse(self, batch: Batch) -> None:
        """Counts a batch that found no room."""
        self._metrics.enqueue_failed(batch)

    async def drain(self) -> None:
        """Returns when everything queued and in flight is delivered or given up. Waits for no further batches."""
        self._draining.set()
        if self._flush and not self._flush.expired():
            self._flush.reschedule(0)
        while self.queue or self._in_flight:
            await self.room()

    def undelivered(self) -> tuple[int, int]:
        """Metric points and spans that are queued or in flight."""
        waiting = [*self._in_flight, *self.queue]
        return sum(batch.point_count for batch in waiting), sum(batch.span_count for batch in waiting)

    def send(self, batch: Batch) -> asyncio.Task[bool]:
        """Delivers a batch that is in no queue; False if it had to be given up. Counted, even if cancelled."""
        sending = asyncio.create_task(self._deliver(batch), name=self.exporter.context.path)
        sending.add_done_callback(lambda done: self.abandon(batch) if done.cancelled() else None)
        return sending

    def abandon(self, batch: Batch) -> None:
        """Counts a batch that is in no queue and was not delivered in time."""
        self._give_up(batch, "stopped before they were delivered")

    async def _consume(self) -> None:
        while True:
            async with self._gathering:
                requests = await self._next_requests()
            for request in requests:
                await self._deliver(request)

    async def _deliver(self, batch: Batch) -> bool:
        self._in_flight.add(batch)
        try:
            return await self._send_until_settled(batch)
        finally:
            self._in_flight.discard(batch)
            self._moved.set()

    async def _next_requests(self) -> list[Batch]:
        """The oldest batches, joined and split as `sending_queue::batch` says; in flight from now on."""
        gathered = await self._gather()
        try:
            requests = self._requests(gathered)
        except Exception as error:  # bytes that are no OTLP cost these batches, not the consumer
            self._logger.exception("The batches cannot be joined")
            for batch in gathered:
                self._give_up(batch, error)
            requests = []
        self._in_flight.difference_update(gathered)
        self._in_flight.update(requests)
        self._moved.set()
        return requests

    async def _gather(self) -> list[Batch]:
        gathered = [await self._take()]
        batching = self._sending_queue.batch
        if batching is None:
            return gathered
        items = gathered[0].item_count
        try:
            async with asyncio.timeout(0 if self._draining.is_set() else batching.flush_timeout) as self._flush:
                while items < batching.min_size:
                    gathered.append(await self._take())
                    items += gathered[-1].item_count
        except TimeoutError:
            pass
        finally:
            self._flush = None
        return gathered

    async def _take(self) -> Batch:
        await self._entries.acquire()
        batch = self.queue.take()
        self._in_flight.add(batch)
        self._moved.set()
        return batch

    def _requests(self, gathered: list[Batch]) -> list[Batch]:
        batching = self._sending_queue.batch
        joined = Batch.join(gathered)
        return list(joined.split(batching.max_size)) if batching and batching.max_size else [joined]

    async def _send_until_settled(self, batch: Batch) -> bool:
        give_up_at = self._clock.monotonic() + (self._retry.max_elapsed_time or float("inf"))
        for delay in backoff(self._retry):
            try:
                await self._attempt(batch)
            except Retryable as error:
                wait = max(delay, error.after or 0.0)
                if not self._retry.enabled or self._clock.monotonic() + wait > give_up_at:
                    return self._give_up(batch, error)
                self._logger.warning("Exporting failed, will retry in %.1f s: %s", wait, error)
                await self._pause(wait)
            except Permanent as error:
                return self._give_up(batch, error)
            else:
                self._metrics.sent(batch)
                return True
        raise AssertionError("backoff never ends")

    async def _pause(self, seconds: float) -> None:
        """Sleeps; the begin of draining ends it early, for one attempt more while there is time."""
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
            raise Retryable(str(error) or f"no answer within {self._timeout or 0:g} s") from error
        except (Retryable, Permanent):
            raise
        except (Exception, asyncio.CancelledError) as error:  # an exporter's bug costs this batch, not the consumer
            if was_cancelled(error):
                raise
            self._logger.exception("The exporter failed on a batch")
            raise Permanent(f"{type(error).__name__}: {error}") from error

    def _give_up(self, batch: Batch, error: Exception | str) -> bool:
        self.lost += batch.item_count
        self._metrics.send_failed(batch)
        self._logger.error("Dropped %d metric points and %d spans: %s", batch.point_count, batch.span_count, error)
        return False
