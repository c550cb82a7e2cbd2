"""The readers of the feed, and the state of the training that it shows.

Each message is encoded once for all readers, and nobody waits for a slow one.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from threading import Lock
from typing import Any, Final

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel_libraries.serving.readers import Reader, Readers
from otel_zernel_libraries.training.durations import RecentDurations, quantiles_of
from otel_zernel_libraries.training.state import (
    COLLECTIVES,
    LAUNCHES,
    MEMORY_READERS,
    WAITS,
    Entities,
    SeenMemory,
    TrainingState,
)

_ALL_REDUCE: Final = ("all_reduce", "")
"""The operations of the collectives in the message: those without a name count, too."""
_LARGEST: Final = 2**53
"""Bytes. JavaScript's numbers hold larger integers only roughly."""


class Feed:
    """Memory by process and GPU, and three distributions of durations of all processes together.

    Any thread may call it; one call works at a time.
    """

    def __init__(self, clock: Clock, expiration: float) -> None:
        """`expiration` is the time (s) without data after which the memory of a process leaves."""
        self._clock = clock
        self._lock = Lock()
        self.state = TrainingState(expiration=expiration, keeps_latencies=True, metrics=_is_read)
        self._updated_ms = 0

    def add(self, batch: Batch) -> None:
        """Adds a batch, which stays as it is. Raises `DecodeError`."""
        with self._lock:
            now = self._clock.monotonic()
            self.state.settle(now)
            self.state.add(batch, now)
            if self.state.touched == now:
                self._updated_ms = self._clock.time_ns() // 1_000_000

    def message(self) -> str:
        """The JSON text that readers get. Latencies without a value in the last minute are 0."""
        with self._lock:
            now, latencies = self._clock.monotonic(), self.state.latencies
            self.state.settle(now)
            reduces = [latencies.collectives[name] for name in _ALL_REDUCE if name in latencies.collectives]
            launch = _quantiles([latencies.launches], now, 0.5, 0.99)
            reduce = _quantiles(reduces, now, 0.5, 0.99)
            (wait,) = _quantiles([latencies.waits], now, 0.5)
            message: dict[str, Any] = {
                "gpu_utilization": [*_memory(self.state.memory)],
                "cuda_latency_p50_us": round(launch[0] * 1e6, 3),
                "cuda_latency_p99_us": round(launch[1] * 1e6, 3),
                "nccl_allreduce_p50_ms": round(reduce[0] * 1e3, 3),
                "nccl_allreduce_p99_ms": round(reduce[1] * 1e3, 3),
                "dataloader_wait_p50_ms": round(wait * 1e3, 3),
                "last_update_ms": self._updated_ms,
            }
        return json.dumps(message, separators=(",", ":"), allow_nan=False)


def _is_read(metric: str) -> bool:
    return metric in MEMORY_READERS or metric.startswith((LAUNCHES, COLLECTIVES, WAITS))


def _memory(memory: Entities[SeenMemory]) -> Iterator[dict[str, Any]]:
    """The items of `gpu_utilization`, in the order of their arrival."""
    for of in memory:
        used, peak = (int(min(max(amount or 0, 0), _LARGEST)) for amount in (of.used, of.peak))
        yield {"key": f"{of.pid}:{of.gpu}", "current_bytes": used, "peak_bytes": max(peak, used)}


def _quantiles(several: Iterable[RecentDurations], now: float, *wanted: float) -> list[float]:
    counts: Counter[int] = Counter()
    for durations in several:
        counts.update(durations.merged(now))
    return quantiles_of(counts, wanted) if counts else [0.0 for _ in wanted]


_FRESH: Final = 0.1
"""Seconds for which a message is the first one of further readers."""


class FeedReaders:
    """All readers, and the message of the moment."""

    def __init__(
        self,
        render: Callable[[], Awaitable[str]],
        clock: Clock,
        interval: float,
        *,
        slow: Callable[[], None],
        skipped: Callable[[int], None],
    ) -> None:
        """`render` makes a message. `slow` is called for each reader that is dropped because it reads too slowly, and
        `skipped` with the number of readers that do not get a message.
        """
        self._render = render
        self._clock = clock
        self._interval = interval
        self._skipped = skipped
        self._readers = Readers(clock, slow)
        self._text = ""
        self._number = 0
        """Of messages that were made."""
        self._rendered_at = -_FRESH
        self._rendering = asyncio.Lock()

    def __len__(self) -> int:
        """The number of readers."""
        return len(self._readers)

    async def run(self) -> None:
        """Pushes messages while there are readers."""
        while True:
            await self._readers.some.wait()
            await self._clock.sleep(self._interval)
            if self._readers:
                await self.push()

    async def push(self) -> None:
        """Makes a message, and wakes the readers."""
        await self._refresh()
        if behind := await self._readers.wake():
            self._skipped(behind)  # they get the newest message in place of the one before

    async def serve(self, receive: Any, send: Any) -> None:
        """Sends messages on a WebSocket until it is closed. What the reader sends is ignored."""
        reader = Reader()
        await self._readers.serve(reader, self._send_all(reader, send), receive, "feed")

    async def _send_all(self, reader: Reader, send: Any) -> None:
        """Sends the newest message at once, and then each time when there is a newer one."""
        if not self._text or self._clock.monotonic() - self._rendered_at >= _FRESH:
            await self._refresh()
        while True:
            reader.wake.clear()
            await self._readers.send(reader, send, {"type": "websocket.send", "text": self._text})
            await reader.wake.wait()

    async def _refresh(self) -> None:
        """Makes a message, unless another task has made one while this one waited."""
        number = self._number
        async with self._rendering:
            if self._number == number:
                self._text = await self._render()
                self._rendered_at = self._clock.monotonic()
                self._number += 1
