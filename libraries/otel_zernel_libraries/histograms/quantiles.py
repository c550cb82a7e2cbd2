"""Quantiles of OTLP's histogram points, for a person who reads them: exact to the width of a bucket."""

import math
from collections.abc import Iterator, Sequence

from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, HistogramDataPoint

Bucket = tuple[float, float, int]
"""The lower bound, the upper bound and the number of values of a bucket."""


def histogram_quantiles(
    point: HistogramDataPoint | ExponentialHistogramDataPoint, quantiles: Sequence[float]
) -> list[float]:
    """The value at each quantile (0 to 1); an empty list if the point counts no value, or has no buckets.

    Within a bucket the values are taken as spread evenly; on a logarithmic scale in an exponential one, as Prometheus
    takes them in native histograms. The result lies between the point's minimum and maximum if it has them.
    """
    logarithmic = isinstance(point, ExponentialHistogramDataPoint)
    buckets = [bucket for bucket in buckets_of(point) if bucket[2]]
    total = sum(count for *_, count in buckets)
    if not total:
        return []
    lowest = point.min if point.HasField("min") else -math.inf
    highest = point.max if point.HasField("max") else math.inf
    values = (_at_rank(buckets, quantile * total, logarithmic=logarithmic) for quantile in quantiles)
    return [min(max(value, lowest), highest) for value in values]


def buckets_of(point: HistogramDataPoint | ExponentialHistogramDataPoint) -> Iterator[Bucket]:
    """The buckets in ascending order, with the empty ones; none if the fields contradict each other."""
    return _explicit(point) if isinstance(point, HistogramDataPoint) else _exponential(point)


def _explicit(point: HistogramDataPoint) -> Iterator[Bucket]:
    bounds = list(point.explicit_bounds)
    if not bounds or len(point.bucket_counts) != len(bounds) + 1:
        return
    # The outer buckets end at the extremes; without them, at zero or at their only bound, as in histogram_quantile.
    first = point.min if point.HasField("min") else min(0.0, bounds[0])
    last = point.max if point.HasField("max") else bounds[-1]
    yield from zip((first, *bounds), (*bounds, last), point.bucket_counts, strict=True)


def _exponential(point: ExponentialHistogramDataPoint) -> Iterator[Bucket]:
    negative = point.negative
    for place in range(len(negative.bucket_counts) - 1, -1, -1):
        index = negative.offset + place
        yield -_bound(index + 1, point.scale), -_bound(index, point.scale), negative.bucket_counts[place]
    yield (-point.zero_threshold if negative.bucket_counts else 0.0), point.zero_threshold, point.zero_count
    for index, count in enumerate(point.positive.bucket_counts, point.positive.offset):
        yield _bound(index, point.scale), _bound(index + 1, point.scale), count


def _bound(index: int, scale: int) -> float:
    """The lower bound of an exponential bucket: (2 ** 2 ** -scale) ** index."""
    try:
        return float(2.0 ** math.ldexp(index, -scale))
    except OverflowError:
        return math.inf if index > 0 else 0.0


def _at_rank(buckets: Sequence[Bucket], rank: float, *, logarithmic: bool) -> float:
    below = 0
    for low, high, count in buckets:
        if below + count >= rank:
            return _between(low, high, (rank - below) / count, logarithmic=logarithmic)
        below += count
    return buckets[-1][1]


def _between(low: float, high: float, share: float, *, logarithmic: bool) -> float:
    if not math.isfinite(high - low):
        return min(low, high, key=abs)
    if logarithmic and low * high > 0:  # both on the same side of zero
        exponent = math.log2(abs(low)) * (1 - share) + math.log2(abs(high)) * share
        return math.copysign(2.0**exponent, low)
    return low + (high - low) * share
