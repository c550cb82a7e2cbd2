"""Delta histograms: they count values, encode a point of all counts, and start again from 0.

Samples are counted as the percentiles processor counts them, so that its answers are as exact as with every sample at
hand: the bounds are those of HDR counters with 3 significant figures, in units of the processor's default resolution.
Only counters that were used get bounds.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import numpy as np

from otel_zernel.otlp.points import Period
from otel_zernel_libraries.histograms.hdr import HdrLayout, encode_buckets, encode_histogram_point

_LAYOUT = HdrLayout(significant_figures=3)
_MAX_BOUNDS = 1024  # remembered of a series; with more, it keeps only those of the current point


class SampleHistogram:
    """Counts samples. Bounds stay from point to point, so that consumers can add the points up."""

    def __init__(self, scaled: Callable[[float], float], per_unit: float) -> None:
        """`scaled` turns a sample into a value of the metric. Counters hold `per_unit` times the value, rounded."""
        self._scaled = scaled
        self._per_unit = per_unit
        self._counts: Counter[float] = Counter()
        self._bounds: list[float] = []
        self._known: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, samples: Iterable[float]) -> None:
        """Counts samples. They must not be negative."""
        self._counts.update(samples)

    def flush(self, attributes: bytes, period: Period) -> bytes:
        """One of the `data_points` of a histogram, with all counts, which are then 0. Needs at least one sample."""
        counted, self._counts = self._counts, Counter()
        values = [(self._scaled(sample), count) for sample, count in sorted(counted.items())]
        self._add_bounds([round(value * self._per_unit) for value, _ in values])
        total = sum(value * count for value, count in values)
        return _encode_point(attributes, period, self._bounds, values, total)

    def _add_bounds(self, integers: Iterable[int]) -> None:
        edges = {edge for integer in integers for edge in _edges(integer)}
        if not edges <= self._known:
            self._known = self._known | edges if len(self._known) < _MAX_BOUNDS else edges
            self._bounds = [edge / self._per_unit for edge in sorted(self._known)]


def _edges(integer: int) -> tuple[int, ...]:
    """The largest integers of the counter below, if one exists, and of the integer's own counter."""
    lowest, highest = _LAYOUT.limits_of(integer)
    return (lowest - 1, highest) if lowest else (highest,)


DURATION_BOUNDS = tuple(4.0**power * 1e-6 for power in range(13))
"""Bounds for the duration of a query, in s: from 1 us to 17 s."""


class DurationHistogram:
    """Counts durations in fixed buckets."""

    def __init__(self) -> None:
        self._durations: list[float] = []

    def __bool__(self) -> bool:
        return bool(self._durations)

    def add(self, seconds: float) -> None:
        """Counts one duration."""
        self._durations.append(seconds)

    def flush(self, attributes: bytes, period: Period) -> bytes:
        """One of the `data_points` of a histogram, with all counts, which are then 0. Needs at least one duration."""
        durations, self._durations = self._durations, []
        values = [(seconds, 1) for seconds in sorted(durations)]
        return _encode_point(attributes, period, DURATION_BOUNDS, values, sum(durations))


def _encode_point(
    attributes: bytes, period: Period, bounds: Sequence[float], values: Sequence[tuple[float, int]], total: float
) -> bytes:
    """The point of values, ascending, and of how often each was counted."""
    counts = [0] * (len(bounds) + 1)
    for value, count in values:
        counts[bisect_left(bounds, value)] += count
    buckets = _encode_buckets(tuple(bounds), tuple(counts))
    lowest, highest = values[0][0], values[-1][0]
    return encode_histogram_point(attributes, period, buckets, sum(counts), total, lowest=lowest, highest=highest)


@lru_cache(maxsize=4096)
def _encode_buckets(bounds: tuple[float, ...], counts: tuple[int, ...]) -> bytes:
    """Cached, because counts repeat where little happens."""
    return encode_buckets(np.array(bounds, np.float64), np.array(counts, np.int64))
