"""One distribution of a duration, merged from the histograms and the summaries of all processes."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, SummaryDataPoint

from otel_zernel_libraries.training.distributions import HistogramPoint
from otel_zernel_libraries.training.durations import (
    WINDOW,
    Counts,
    RecentDurations,
    index_of,
    quantiles_of,
)

_MOST_SUMMARIES: Final = 4096
"""Series of summaries. Each takes about 500 bytes."""
_MOST_QUANTILES: Final = 100
_PIECES: Final = 50
"""Pieces of the interval between two quantiles of a summary."""
_SHARES: Final = 1_000_000
"""Counts for one value, since pieces of a summary are less than one."""


class _Summary(NamedTuple):
    counts: Counts
    seen_at: float


class MergedLatency:
    """The durations (s) of the last minute. Times are monotonic, in s.

    Quantiles of summaries cannot be added. So a summary stands for as many values as it counts, spread evenly on a
    logarithmic scale between its quantiles. The result for one summary has its own quantiles.
    """

    def __init__(self, drop: Callable[[int, str], None]) -> None:
        self._durations = RecentDurations()
        self._summaries: dict[bytes, _Summary] = {}
        self._drop = drop

    def add(self, point: HistogramPoint, now: float) -> None:
        """Adds the values of a delta."""
        self._durations.add(point, AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA, (), now)

    def replace(self, series: bytes, point: SummaryDataPoint, now: float) -> None:
        """Takes the newest summary of a series. One without quantiles has no values."""
        self.end(series)
        self._forget(now)
        if len(self._summaries) >= _MOST_SUMMARIES:
            self._drop(1, "max_series")
        elif counts := _counts_of(point):
            self._summaries[series] = _Summary(counts, now)

    def end(self, series: bytes) -> None:
        """Forgets a series of summaries that has ended."""
        self._summaries.pop(series, None)

    def quantiles(self, now: float, *wanted: float) -> list[float]:
        """The durations (s) at these quantiles; zeros if there was no value in the last minute."""
        self._forget(now)
        counts = Counter({index: count * _SHARES for index, count in self._durations.counts(now).items()})
        for summary in self._summaries.values():
            counts.update(summary.counts)
        return quantiles_of(counts, wanted) if counts else [0.0 for _ in wanted]

    def _forget(self, now: float) -> None:
        """The oldest summaries are first."""
        while self._summaries:
            series, oldest = next(iter(self._summaries.items()))
            if now - oldest.seen_at <= WINDOW:
                return
            del self._summaries[series]


def _counts_of(point: SummaryDataPoint) -> Counts:
    """The values that a summary stands for; empty if it has no quantiles."""
    known = sorted(
        (one.quantile, one.value)
        for one in point.quantile_values[:_MOST_QUANTILES]
        if 0 <= one.quantile <= 1 and math.isfinite(one.value) and one.value >= 0
    )
    counts: Counts = Counter()
    if not known:
        return counts
    total = (point.count or 1) * _SHARES
    for share, value in _pieces(known):
        counts[index_of(value)] += round(share * total)
    return +counts


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
