"""The part of a reading's time in which calls were counted, and the scaling of counts that are a sample."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from otel_zernel_receivers.ebpf.budget.overhead import GROUPS, UPPER_BOUNDS, Group
from otel_zernel_receivers.ebpf.tables.series import SeriesKey, SeriesReading


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a reading's time the probes of each group were on."""

    seconds: float
    """The length of the reading."""
    sampled_seconds: Mapping[Group, float] = field(default_factory=dict)
    """Seconds with probes on, for each sampled group. Other groups were on all the time."""
    shares: Mapping[Group, float] = field(default_factory=dict)
    """The share of the time with probes on, per sampled group. Readings without a sample count towards the next one."""
    calls: Mapping[SeriesKey, float] = field(default_factory=dict)
    """Estimated calls in all of that time, for each series of a sampled group."""
    excess: float = 0.0
    """See `Overhead.excess`."""

    def is_sample(self, reading: SeriesReading) -> bool:
        """Whether the reading counts only a part of the calls."""
        return GROUPS.get(reading.operation) in self.shares

    def scaled(self, readings: Iterable[SeriesReading]) -> list[SeriesReading]:
        """The readings, scaled to all calls. Readings that cannot be scaled are dropped."""
        scaled = (
            self._scale(reading) if self.is_sample(reading) else reading
            for reading in readings
            if self._can_scale(reading)
        )
        return [reading for reading in scaled if len(reading.counts)]

    def _can_scale(self, reading: SeriesReading) -> bool:
        """An upper bound needs both the collective and the wait after it; sampling usually misses one."""
        return reading.operation not in UPPER_BOUNDS or not self.shares.keys() - {Group.LAUNCH, Group.OPERATORS}

    def _scale(self, reading: SeriesReading) -> SeriesReading:
        counted = int(reading.counts.sum())
        factor = self.calls.get(reading.key, 0.0) / counted if counted else 0.0
        # The running total is rounded, not each bucket: buckets with few calls would all be rounded the same way.
        counts = np.diff(np.rint(np.cumsum(reading.counts) * factor), prepend=0.0).astype(np.int64)
        return replace(
            reading,
            index=reading.index[counts > 0],
            counts=counts[counts > 0],
            sum_ns=round(reading.sum_ns * factor),
            bytes=round(reading.bytes * factor),
        )
