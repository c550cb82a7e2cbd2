"""The state of the training that the feed shows, and its message."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any, Final

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
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
