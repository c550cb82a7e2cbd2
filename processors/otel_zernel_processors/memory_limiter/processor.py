"""The memory limiter."""

import gc
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakSet

from opentelemetry.metrics import Counter

from otel_zernel.batch import ALL_SIGNALS, Batch, Signal
from otel_zernel.component import Context, Processor
from otel_zernel.errors import Refused
from otel_zernel.runtime.memory import memory_limit, resident_memory
from otel_zernel_libraries.freed_memory import give_back_memory
from otel_zernel_processors.memory_limiter.config import MIB, UNLIMITED, MemoryLimiterConfig, MemoryLimits
from otel_zernel_processors.memory_limiter.declared import ITEMS

_one_at_a_time = threading.Lock()
"""Several limiters of one process must not free memory at the same time."""


def free_memory(full: bool) -> None:
    """Collects garbage and returns free memory to the kernel. Does nothing if another thread does the same.

    The garbage collector stops the whole process, for about 20 ms if `full`, otherwise under 1 ms. Without `full`,
    only young objects are collected. Python's own objects are mostly freed without either of them.
    """
    if not _one_at_a_time.acquire(blocking=False):
        return
    try:
        gc.collect(2 if full else 1)
        give_back_memory()
    finally:
        _one_at_a_time.release()


def in_thread(work: Callable[[], None]) -> threading.Thread:
    """Starts the work in a daemon thread."""
    thread = threading.Thread(target=work, name="memory_limiter", daemon=True)
    thread.start()
    return thread


@dataclass(frozen=True, slots=True)
class MemorySources:
    """The functions by which the limiter sees and changes the memory of its process."""

    used: Callable[[], int] = resident_memory
    available: Callable[[], int | None] = memory_limit
    free: Callable[[bool], None] = free_memory
    start: Callable[[Callable[[], None]], threading.Thread] = in_thread


_EFFECTIVE = 0.05  # an attempt that frees a smaller part doubles the interval
_LEAST_SHARE = 0.95  # of the check interval: at least so much time between two attempts


class FreeingSchedule:
    """The times of attempts to free memory above one limit. All times are seconds of one clock."""

    def __init__(self, shortest: float, longest: float, check_interval: float) -> None:
        self._shortest = max(shortest, check_interval * _LEAST_SHARE)
        self._longest = max(longest, self._shortest) if longest else self._shortest
        self._interval = self._shortest
        self._last: float | None = None
        self._used_before = 0

    def is_due(self, now: float) -> bool:
        return self._last is None or now - self._last >= self._interval

    def start(self, now: float, used: int) -> None:
        """Notes an attempt and the bytes in use before it."""
        self._last = now
        self._used_before = used

    def finish(self, used: int) -> None:
        """Notes the bytes in use after the attempt."""
        if self._used_before - used >= self._used_before * _EFFECTIVE:
            self._interval = self._shortest
        else:
            self._interval = min(self._interval * 2, self._longest)

    def relax(self) -> None:
        """Memory is below the limit: the next attempts come at the shortest interval."""
        self._interval = self._shortest


_SHORTEST_LOOK = 0.01
"""Seconds between two looks under load. A source that sends 1 GB/s adds 10 MB meanwhile."""
_COUNTED: Mapping[Signal, str] = {
    "metrics": "metric_points",
    "traces": "spans",
    "logs": "log_records",
    "profiles": "profile_samples",
}


class MemoryLimiterProcessor(Processor):
    """Refuses data while the process uses too much memory, after an attempt to free some."""

    Config = MemoryLimiterConfig
    stability = "beta"
    signals = ALL_SIGNALS
    belongs_first = True

    def __init__(self, config: MemoryLimiterConfig, context: Context, sources: MemorySources | None = None) -> None:
        super().__init__(config, context)
        self.interval = config.check_interval
        self._sources = sources or MemorySources()
        self._looked: float | None = None
        self._refusing = False
        self._thread: threading.Thread | None = None
        self._tried: FreeingSchedule | None = None
        """The schedule whose attempt is not evaluated yet."""
        soft = (config.min_gc_interval_when_soft_limited, config.max_gc_interval_when_soft_limited)
        hard = (config.min_gc_interval_when_hard_limited, config.max_gc_interval_when_hard_limited)
        self._soft, self._hard = (FreeingSchedule(*limits, config.check_interval) for limits in (soft, hard))
        self._counted: WeakSet[Batch] = WeakSet()
        """The refused batches that their sources still have."""
        self._accepted, self._refused = self._counters("accepted"), self._counters("refused")

    @property
    def reads(self) -> Collection[Signal]:
        """None: it only counts."""
        return ()

    def process(self, batch: Batch) -> Iterable[Batch]:
        """The batch itself."""
        self._count(self._accepted, batch)
        return (batch,)

    def admit(self, batch: Batch) -> None:
        """Raises `Refused` above the limits. Looks at the memory first, at most every 10 ms: bursts grow quickly."""
        now = self.context.clock.monotonic()
        if self._looked is None or now - self._looked >= min(_SHORTEST_LOOK, self.config.check_interval):
            self._look(now)
        if self._refusing:
            self._count_refused(batch)
            raise Refused("memory usage is above the limit of memory_limiter", after=self.config.check_interval)

    def tick(self, now_ns: int) -> Iterable[Batch]:
        """Looks at the memory. Emits nothing."""
        self._look(self.context.clock.monotonic())
        return ()

    @cached_property
    def _limits(self) -> MemoryLimits:
        """Read at the first look: constructors must not read files."""
        logger = self.context.logger
        available = None if self.config.limit_mib else self._sources.available()
        limits: MemoryLimits | None = self.config.limits(available)
        if limits is None:
            logger.error("The memory of this machine is not readable, so limit_percentage has no effect; set limit_mib")
            return UNLIMITED
        logger.info("Memory limits: hard %d MiB, soft %d MiB", limits.hard // MIB, limits.soft // MIB)
        return limits

    def _look(self, now: float) -> None:
        """Compares the memory with the limits. Frees some if that is due, and looks again when that is done."""
        self._looked = now
        used, is_freeing = self._sources.used(), self._is_freeing
        if self._tried and not is_freeing:
            self._tried.finish(used)
            self._tried = None
        if used < self._limits.soft:
            self._resume(used)
        elif used >= self._limits.hard:
            self._refuse(used)
            self._free(self._hard, now, used, full=True)
        elif not is_freeing and not self._free(self._soft, now, used, full=False):
            self._refuse(used)

    @property
    def _is_freeing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _free(self, schedule: FreeingSchedule, now: float, used: int, full: bool) -> bool:
        """Starts to free memory in a thread if that is due. Returns whether it did."""
        if self._is_freeing or not schedule.is_due(now):
            return False
        schedule.start(now, used)
        self._tried = schedule
        self._thread = self._sources.start(lambda: self._sources.free(full))
        return True

    def _refuse(self, used: int) -> None:
        if self._refusing:
            return
        self._refusing = True
        problem = f"refusing data: {used // MIB} MiB of memory in use, above the soft limit of {self._soft_mib} MiB"
        self.context.report(problem)
        self.context.logger.warning(
            "Refusing data: %d MiB of memory in use, above the soft limit of %d MiB", used // MIB, self._soft_mib
        )

    def _resume(self, used: int) -> None:
        self._soft.relax()
        self._hard.relax()
        if not self._refusing:
            return
        self._refusing = False
        self.context.report(None)
        self.context.logger.info("Accepting data again: %d MiB of memory in use", used // MIB)

    @property
    def _soft_mib(self) -> int:
        return self._limits.soft // MIB

    def _counters(self, outcome: str) -> dict[Signal, Counter]:
        create = self.context.meter.create_counter
        return {signal: create(*ITEMS[outcome, noun].counter) for signal, noun in _COUNTED.items()}

    def _count_refused(self, batch: Batch) -> None:
        """Counts a refused batch once, however often its source emits it."""
        if batch not in self._counted:
            self._counted.add(batch)
            self._count(self._refused, batch)

    def _count(self, counters: Mapping[Signal, Counter], batch: Batch) -> None:
        for signal in batch.signals:
            counters[signal].add(batch.count_of(signal), {"processor": self.context.id})
