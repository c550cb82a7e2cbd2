"""The values that a histogram point counts, by their buckets."""

import math
from collections import Counter

from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, HistogramDataPoint

from otel_zernel_libraries.histograms.quantiles import buckets_of

HistogramPoint = HistogramDataPoint | ExponentialHistogramDataPoint


def distribution_of(point: HistogramPoint) -> Counter[float]:
    """The number of values by value. Each value is the middle of its bucket, between the point's minimum and maximum.

    It is exact to the width of a bucket: to 0.1 % for the bounds that `phases` and `ebpf` emit.
    """
    lowest = point.min if point.HasField("min") else -math.inf
    highest = point.max if point.HasField("max") else math.inf
    found: Counter[float] = Counter()
    for low, high, count in buckets_of(point):
        if count and math.isfinite(low + high):
            found[min(max((low + high) / 2, lowest), highest)] += count
    return found
