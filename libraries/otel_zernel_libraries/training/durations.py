"""The distribution of durations over the last minute, in bounded memory."""

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    SummaryDataPoint,
)

from otel_zernel_libraries.histograms.quantiles import buckets_of

HistogramPoint = HistogramDataPoint | ExponentialHistogramDataPoint


def distribution_of(point: HistogramPoint) -> Counter[float]:
    """The number of values by value. Each value is the middle of its bucket, between the point's minimum and maximum.

    It is exact to the width of a bucket: to 0.1 % for the bounds that `phases` and `ebpf` emit.
    """
    lowest = point.min if point.HasField("min") else -math.inf
    highest = point.max if point.HasField("max") else math.inf
    by_value: Counter[float] = Counter()
    for low, high, count in buckets_of(point):
        if count and math.isfinite(low + high):
            by_value[min(max((low + high) / 2, lowest), highest)] += count
    return by_value


WINDOW: Final = 60.0
"""Seconds."""
_PART: Final = 10.0
"""Seconds of one part of the window: it slides by whole parts."""
_PER_OCTAVE: Final = 64
"""Counters for a factor of two: 1.1 % wide, so a quantile is exact to 0.6 %."""
_SHORTEST, _LONGEST = 1e-9, 1e9

_MOST_SUMMARIES: Final = 4096
"""Series of summaries. Each takes about 500 bytes."""
_MOST_QUANTILES: Final = 100
_PIECES: Final = 50
"""Pieces of the interval between two quantiles of a summary."""
_SHARES: Final = 1_000_000
"""Counts for one value, since pieces of a summary are less than one."""

Counts = Counter[int]
"""The number of durations by index."""


@dataclass
class _Summary:
    count: int
    quantiles: list[tuple[float, float]]
    """In order, with their values (s)."""
    arrived: float

    @cached_property
    def counts(self) -> Counts:
        """The values that the summary stands for, spread evenly on a logarithmic scale between its quantiles."""
        counts: Counts = Counter()
        for share, value in _pieces(self.quantiles):
            counts[index_of(value)] += round(share * (self.count or 1) * _SHARES)
        return +counts


class RecentDurations:
    """The durations (s) that arrived in the last minute. Times are monotonic, in s.

    Quantiles of summaries cannot be added. So a summary stands for as many values as it counts. The result for one
    summary has its own quantiles.
    """

    def __init__(self) -> None:
        self._parts: deque[tuple[float, Counts]] = deque()
        self._summaries: dict[Hashable, _Summary] = {}
        """By series, the oldest first."""

    def add(self, counts: Counts, now: float) -> None:
        """Adds durations."""
        self._forget(now)
        if not counts:
            return
        if self._parts and now - self._parts[-1][0] < _PART:
            self._parts[-1][1].update(counts)
        else:
            self._parts.append((now, counts.copy()))

    def add_summary(self, point: SummaryDataPoint, series: Hashable, now: float) -> bool:
        """Takes the newest summary of a series. One without quantiles has no values. False if there is no room."""
        self.end(series)
        self._forget(now)
        if len(self._summaries) >= _MOST_SUMMARIES:
            return False
        known = sorted(
            (quantile_value.quantile, quantile_value.value)
            for quantile_value in point.quantile_values[:_MOST_QUANTILES]
            if 0 <= quantile_value.quantile <= 1 and math.isfinite(quantile_value.value) and quantile_value.value >= 0
        )
        if known:
            self._summaries[series] = _Summary(point.count, known, now)
        return True

    def end(self, series: Hashable) -> None:
        """Forgets a series of summaries that has ended."""
        self._summaries.pop(series, None)

    def quantiles(self, now: float, wanted: Iterable[float] = (0.5, 0.99)) -> tuple[int, list[float]]:
        """The number of durations in the last minute and their quantiles; (0, []) if there is none.

        Summaries count without histograms only: `percentiles` may make both of the same durations.
        """
        wanted = tuple(wanted)
        if counts := self.counts(now):
            return counts.total(), quantiles_of(counts, wanted)
        several = list(self._summaries.values())
        if len(several) == 1 and (exact := dict(several[0].quantiles)).keys() >= set(wanted):
            return several[0].count, [exact[share] for share in wanted]
        merged = self.merged(now)
        return (sum(durations.count for durations in several), quantiles_of(merged, wanted)) if merged else (0, [])

    def counts(self, now: float) -> Counts:
        """The durations of the last minute that histograms have."""
        self._forget(now)
        counts: Counts = Counter()
        for _, part in self._parts:
            counts.update(part)
        return counts

    def merged(self, now: float) -> Counts:
        """The durations of the last minute in histograms and in summaries, each a million times."""
        counts = Counter({index: count * _SHARES for index, count in self.counts(now).items()})
        for summary in self._summaries.values():
            counts.update(summary.counts)
        return counts

    def is_ageing(self, now: float) -> bool:
        """Whether the oldest part or summary leaves the window now."""
        oldest = next(iter(self._summaries.values()), None)
        return bool((self._parts and now - self._parts[0][0] > WINDOW) or (oldest and now - oldest.arrived > WINDOW))

    def _forget(self, now: float) -> None:
        while self._parts and now - self._parts[0][0] > WINDOW:
            self._parts.popleft()
        while self._summaries and now - self._summaries[oldest := next(iter(self._summaries))].arrived > WINDOW:
            del self._summaries[oldest]


def counts_of(point: HistogramPoint) -> Counts:
    """The durations of a histogram point."""
    counts: Counts = Counter()
    for value, count in distribution_of(point).items():
        counts[index_of(value)] += count
    return counts


def quantiles_of(counts: Counts, wanted: Iterable[float]) -> list[float]:
    """The durations (s) at these quantiles. `counts` must not be empty."""
    indices = sorted(counts)
    below = [*accumulate(counts[index] for index in indices)]
    places = (bisect_left(below, below[-1] * share) for share in wanted)
    return [value_of(indices[min(place, len(indices) - 1)]) for place in places]


def index_of(value: float) -> int:
    """The index of a duration (s): 64 for each factor of two."""
    return math.floor(math.log2(min(max(value, _SHORTEST), _LONGEST)) * _PER_OCTAVE)


def value_of(index: int) -> float:
    """The duration (s) in the middle of an index."""
    return float(2.0 ** ((index + 0.5) / _PER_OCTAVE))


def _pieces(known: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Shares of all values, each with its value. Beyond the outer quantiles, values are those of the quantiles."""
    yield known[0]
    for (low, low_value), (high, high_value) in pairwise(known):
        for piece in range(1, _PIECES + 1):
            yield (high - low) / _PIECES, _between(low_value, high_value, piece / _PIECES)
    last, last_value = known[-1]
    yield 1 - last, last_value


def _between(low: float, high: float, share: float) -> float:
    if low <= 0 or high <= 0:
        return low + (high - low) * share
    return float(low ** (1 - share) * high**share)
