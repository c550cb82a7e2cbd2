"""The values that a cumulative histogram point has more than the previous point of its series.

Both points may have different buckets: exponential histograms lower their scale as values arrive, and explicit bounds
appear with the first value near them. Counts are compared bucket by bucket, before buckets become values: the middle of
a bucket moves with its bounds and with the extremes of the point.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, HistogramDataPoint

HistogramPoint = HistogramDataPoint | ExponentialHistogramDataPoint
_Buckets = Counter[int]
"""Counts by index."""


def increase_of(point: HistogramPoint, previous: HistogramPoint | None) -> HistogramPoint:
    """A point with the values since `previous`. It has none if `previous` is missing, or of another kind.

    If the series began again after `previous`, all values of the point are new.
    """
    gained = type(point)()
    if type(previous) is not type(point):  # the values may be those of days
        return gained
    gained.CopyFrom(point)  # type: ignore[arg-type]  # the same type
    if not _began_again(point, previous):
        gained.ClearField("sum")
        subtract = _subtract_explicit if isinstance(point, HistogramDataPoint) else _subtract_exponential
        subtract(gained, previous)
    return gained


def _began_again(point: HistogramPoint, previous: Any) -> bool:
    return bool(point.count < previous.count or 0 < previous.time_unix_nano < point.start_time_unix_nano)


def _subtract_explicit(gained: Any, previous: Any) -> None:
    bounds, before = gained.explicit_bounds, previous.bucket_counts
    if previous.explicit_bounds != bounds:
        before = _moved(previous, bounds)
    if len(before) != len(gained.bucket_counts):  # the fields contradict each other
        gained.Clear()
        return
    gained.count -= previous.count
    gained.bucket_counts[:] = [max(now - then, 0) for now, then in zip(gained.bucket_counts, before, strict=True)]


def _moved(previous: Any, bounds: Sequence[float]) -> list[int]:
    """The counts in buckets with other bounds: each goes to the bucket that has its upper bound."""
    counts = [0] * (len(bounds) + 1)
    uppers = (*previous.explicit_bounds, math.inf)
    if len(uppers) != len(previous.bucket_counts):
        return []
    for upper, count in zip(uppers, previous.bucket_counts, strict=True):
        if count:
            counts[bisect_left(bounds, upper)] += count
    return counts


def _subtract_exponential(gained: Any, previous: Any) -> None:
    scale = min(gained.scale, previous.scale)
    zeros = previous.zero_count
    for side, of_previous in ((gained.positive, previous.positive), (gained.negative, previous.negative)):
        before = _at(of_previous, previous.scale - scale)
        if gained.zero_threshold > previous.zero_threshold:
            zeros += _take_zeros(before, scale, gained.zero_threshold)
        _fill(side, _at(side, gained.scale - scale) - before)
    gained.count -= previous.count
    gained.zero_count = max(gained.zero_count - zeros, 0)
    gained.scale = scale


def _at(side: ExponentialHistogramDataPoint.Buckets, shift: int) -> _Buckets:
    """The counts at a scale that is lower by `shift`. Each step merges two neighbours."""
    found: _Buckets = Counter()
    for index, count in enumerate(side.bucket_counts, side.offset):
        if count:
            found[index >> shift] += count
    return found


def _take_zeros(side: _Buckets, scale: int, threshold: float) -> int:
    """Takes out the buckets that the zero bucket now covers. Returns their count."""
    covered = [index for index in side if _middle(index, scale) <= threshold]
    return sum(side.pop(index) for index in covered)


def _middle(index: int, scale: int) -> float:
    try:
        return float(2.0 ** math.ldexp(index + 0.5, -scale))
    except OverflowError:
        return math.inf if index > 0 else 0.0


def _fill(side: ExponentialHistogramDataPoint.Buckets, counts: _Buckets) -> None:
    first = min(counts, default=0)
    side.offset = first
    side.bucket_counts[:] = [counts[index] for index in range(first, max(counts, default=first - 1) + 1)]
