"""The buckets of an explicit or exponential histogram point, in one form to spread over values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, HistogramDataPoint

from otel_zernel_libraries.histograms.hdr import Floats, HdrLayout, Ints, integers_below
from otel_zernel_libraries.histograms.resolution import LARGEST
from otel_zernel_processors.percentiles.counts.tally import SparseCounts

HistogramPoint = HistogramDataPoint | ExponentialHistogramDataPoint

_ZERO = -(2**40)  # key of an exponential histogram's zero bucket: below the index of every double
_PLACES = 32  # the count of a wide bucket is spread over at most this many values
_SCALES = range(-10, 21)  # the scales that OpenTelemetry SDKs produce
_TOO_MANY = 2**53  # larger counts are not exact as doubles
_BELOW, _ABOVE = np.array([-np.inf]), np.array([np.inf])


def _no_edges() -> Floats:
    return np.empty(0)


class _Limits(TypedDict, total=False):
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class HistogramState:
    """Counts by bucket. An explicit histogram has `edges`, an exponential one a `scale`."""

    buckets: SparseCounts
    """Keys are the positions of explicit buckets, or the indexes of exponential ones."""
    sum: float | None
    negative: int = 0
    """The number of values in buckets below zero. These buckets have no keys."""
    edges: Floats = field(default_factory=_no_edges)
    """Explicit bounds, between minus infinity and infinity."""
    scale: int | None = None
    lowest: float = 0.0
    """The minimum of the values; 0 if unknown."""
    highest: float = math.inf
    """The maximum of the values; infinite if unknown."""

    @classmethod
    def of(cls, point: HistogramPoint) -> "HistogramState":
        """The state of the point. Raises `ValueError` if its fields contradict each other."""
        if isinstance(point, HistogramDataPoint):
            return _explicit(point)
        return _exponential(point)

    def emptied(self) -> "HistogramState":
        """The same histogram with a count of 0."""
        return replace(self, buckets=SparseCounts.merge([]), sum=0.0, negative=0)

    def limits(self) -> tuple[Floats, Floats]:
        """The bounds of each bucket: the first exclusive, the second inclusive."""
        keys = self.buckets.keys
        if self.scale is None:
            return self.edges[keys], self.edges[keys + 1]
        zero = keys == _ZERO
        low, high = (np.exp2(np.ldexp((keys + step).astype(np.float64), -self.scale)) for step in (0, 1))
        return np.where(zero, -np.inf, low), np.where(zero, 0.0, high)


def ranges(states: Sequence[HistogramState], per_unit: Floats) -> tuple[Ints, Ints]:
    """The smallest and the largest integer in each bucket, concatenated for all states.

    `per_unit`, of shape (len(states),): the number of integers in one unit of the metric.
    """
    times = [len(state.buckets.keys) for state in states]
    with np.errstate(over="ignore", invalid="ignore"):  # bounds may be infinite
        lowest, highest = np.rint(np.array([(state.lowest, state.highest) for state in states]).T * per_unit)
        low, high = (np.concatenate(ends) for ends in zip(*(state.limits() for state in states), strict=True))
        per_unit = np.repeat(per_unit, times)
        first = np.maximum(integers_below(low, per_unit) + 1, np.repeat(lowest, times))
        last = np.minimum(integers_below(high, per_unit), np.repeat(highest, times))
    last = np.where(np.isinf(last), first - 1, last)  # the last bucket, its highest value unknown: at its bound
    last = np.clip(last, 0, LARGEST)
    return np.clip(first, 0, last).astype(np.int64), last.astype(np.int64)


def _explicit(point: HistogramDataPoint) -> HistogramState:
    bounds = np.array(point.explicit_bounds)
    counts = _counts(point.bucket_counts)
    if (len(bounds) and math.isnan(bounds[0])) or not (bounds[1:] > bounds[:-1]).all():
        raise ValueError("bounds of a histogram must increase")
    if len(counts) != len(bounds) + 1:
        if len(counts) or len(bounds):
            raise ValueError("a histogram must have one bucket more than bounds")
        counts = _counts([point.count])
    limits = _known_limits(point)
    edges = np.concatenate((_BELOW, bounds, _ABOVE))
    if not len(bounds) and "highest" not in limits:  # one bucket for all values: only their mean is known
        limits["lowest"] = limits["highest"] = (_sum(point, 0) or 0.0) / max(point.count, 1)
    below = int(bounds.searchsorted(0.0)) if len(bounds) and bounds[0] < 0 else 0
    keys = counts[below:].nonzero()[0] + below
    negative = int(counts[:below].sum()) if below else 0
    return HistogramState(SparseCounts(keys, counts[keys]), _sum(point, negative), negative, edges, **limits)


def _exponential(point: ExponentialHistogramDataPoint) -> HistogramState:
    if point.scale not in _SCALES:
        raise ValueError("the scale of an exponential histogram must be -10 to 20")
    counts = _counts([point.zero_count, *point.positive.bucket_counts])
    keys = np.arange(len(counts)) + point.positive.offset - 1
    keys[0] = _ZERO
    buckets = SparseCounts(keys, counts).where(counts > 0)
    negative = sum(point.negative.bucket_counts)
    return HistogramState(buckets, _sum(point, negative), negative, scale=point.scale, **_known_limits(point))


def _counts(counts: Sequence[int]) -> Ints:
    checked = np.array(counts, np.uint64)
    if checked.max(initial=0) >= _TOO_MANY:
        raise ValueError("the count of a bucket is 2^53 or more")
    return checked.astype(np.int64)


def _sum(point: HistogramPoint, negative: int) -> float | None:
    """The sum of the point; None if it is missing, not finite, or includes values below zero."""
    is_valid = point.HasField("sum") and math.isfinite(point.sum) and point.sum >= 0 and not negative
    return point.sum if is_valid else None


def _known_limits(point: HistogramPoint) -> _Limits:
    limits = _Limits()
    if point.HasField("min") and point.min > 0:
        limits["lowest"] = point.min
    if point.HasField("max") and point.max >= 0:
        limits["highest"] = point.max
    return limits


def spread(layout: HdrLayout, first: Ints, last: Ints, counts: Ints) -> tuple[Ints, Ints, Ints]:
    """Spreads the count of each bucket evenly over the integers from `first` to `last`.

    Returns the index of the bucket, a value, and its count. A bucket within one counter of the layout is exact. A
    wider one is spread over at most 32 values.
    """
    counters = layout.index(last) - layout.index(first) + 1
    places = np.minimum(np.minimum(counts, counters), _PLACES)
    bucket = np.repeat(np.arange(len(counts)), places)
    place = np.arange(len(bucket)) - np.repeat(np.cumsum(places) - places, places)
    width = ((last - first + 1) / places)[bucket]
    values = np.minimum(first[bucket] + ((place + 0.5) * width).astype(np.int64), last[bucket])
    share, rest = np.divmod(counts, places)
    return bucket, values, share[bucket] + (place < rest[bucket])
