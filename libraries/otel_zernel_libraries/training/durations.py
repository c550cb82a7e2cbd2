"""The distribution of durations over the last minute, in bounded memory."""

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Hashable, Iterable
from itertools import accumulate
from typing import Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, SummaryDataPoint

from otel_zernel_libraries.histograms.amounts import MalformedAmount, NotComparable
from otel_zernel_libraries.histograms.temporality.reading import amount_of
from otel_zernel_libraries.histograms.temporality.track import Track
from otel_zernel_libraries.training.distributions import HistogramPoint, distribution_of

WINDOW: Final = 60.0
"""Seconds."""
_PART: Final = 10.0
"""Seconds of one part of the window: it slides by whole parts."""
_PER_OCTAVE: Final = 64
"""Counters for a factor of two: 1.1 % wide, so a quantile is exact to 0.6 %."""
_SHORTEST, _LONGEST = 1e-9, 1e9

_MOST_SERIES: Final = 64
"""Cumulative series whose last point is kept for the increase."""

Counts = Counter[int]


class RecentDurations:
    """The durations (s) that arrived in the last minute. Times are monotonic, in s."""

    def __init__(self) -> None:
        self._parts: deque[tuple[float, Counts]] = deque()
        self._previous: dict[Hashable, Track] = {}
        """The newest point of each cumulative series."""
        self._quantiles: dict[float, float] = {}
        """Those of the last summary, for a pipeline whose `percentiles` makes summaries."""
        self._summary_count = 0
        self._summary_at = -math.inf

    def add(self, point: HistogramPoint, temporality: int, series: Hashable, now: float) -> list[tuple[float, int]]:
        """Adds the values of a point, for a cumulative one those since its series' previous point.

        Returns these values, each with its count.
        """
        if temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE:
            point = self._increase(point, series)
        counts: Counts = Counter()
        for value, count in distribution_of(point).items():
            counts[index_of(value)] += count
        self._join(counts, now)
        return [(value_of(index), count) for index, count in counts.items()]

    def add_summary(self, point: SummaryDataPoint, now: float) -> None:
        """Takes the quantiles of a summary. A summary without quantiles says that its window has no values."""
        self._quantiles = {one.quantile: one.value for one in point.quantile_values if math.isfinite(one.value)}
        self._summary_count, self._summary_at = point.count, now

    def quantiles(self, now: float, wanted: Iterable[float] = (0.5, 0.99)) -> tuple[int, list[float]]:
        """The number of durations in the last minute and their quantiles; (0, []) if there is none."""
        if found := self.counts(now):
            return found.total(), quantiles_of(found, wanted)
        if now - self._summary_at <= WINDOW and all(one in self._quantiles for one in wanted):
            return self._summary_count, [self._quantiles[one] for one in wanted]
        return 0, []

    def counts(self, now: float) -> Counts:
        """The number of durations of the last minute, by index."""
        self._forget(now)
        found: Counts = Counter()
        for _, part in self._parts:
            found.update(part)
        return found

    def is_ageing(self, now: float) -> bool:
        """Whether the oldest part leaves the window now."""
        return bool(self._parts) and now - self._parts[0][0] > WINDOW

    def _increase(self, point: HistogramPoint, series: Hashable) -> HistogramPoint:
        """A point with the values since the previous one. It has none if that is missing: they may be those of days.

        The counts are subtracted before buckets become values: the middle of a bucket moves with its bounds.
        """
        gained = type(point)()
        try:
            amount = amount_of(point)
        except MalformedAmount:
            return gained
        previous = self._previous.get(series)
        if previous is None and len(self._previous) >= _MOST_SERIES:
            del self._previous[next(iter(self._previous))]
        self._previous[series] = Track(amount, point.start_time_unix_nano, point.time_unix_nano)
        if previous is None:
            return gained
        try:
            increase = previous.increase(amount, point.start_time_unix_nano)
        except NotComparable:
            return gained
        (amount if increase is None else increase).write(gained)
        return gained

    def _join(self, counts: Counts, now: float) -> None:
        self._forget(now)
        if not counts:
            return
        if self._parts and now - self._parts[-1][0] < _PART:
            self._parts[-1][1].update(counts)
        else:
            self._parts.append((now, counts.copy()))

    def _forget(self, now: float) -> None:
        while self.is_ageing(now):
            self._parts.popleft()


def quantiles_of(counts: Counts, wanted: Iterable[float]) -> list[float]:
    """The durations (s) at these quantiles. `counts` must not be empty."""
    indices = sorted(counts)
    below = [*accumulate(counts[index] for index in indices)]
    places = (bisect_left(below, below[-1] * one) for one in wanted)
    return [value_of(indices[min(place, len(indices) - 1)]) for place in places]


def index_of(value: float) -> int:
    """The index of a duration (s): 64 for each factor of two."""
    return math.floor(math.log2(min(max(value, _SHORTEST), _LONGEST)) * _PER_OCTAVE)


def value_of(index: int) -> float:
    """The duration (s) in the middle of an index."""
    return float(2.0 ** ((index + 0.5) / _PER_OCTAVE))
