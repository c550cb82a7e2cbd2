"""Exponential histograms: adding two of them, and converting one to classic buckets.

A bucket of index i counts the values in (base^i, base^(i+1)] with base = 2^(2^-scale). Decreasing the scale by 1 merges
each pair of neighbouring buckets (OpenTelemetry metrics data model, "ExponentialHistogram").
"""

import math
from dataclasses import dataclass, field
from itertools import accumulate

from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint

Counts = dict[int, int]
"""The counts of the non-empty buckets, by index."""

_MAX_BUCKETS = 160
"""The most buckets kept on each side of zero. It is the default of the OpenTelemetry SDKs."""
MAX_SHOWN_BUCKETS = 32
"""The most buckets shown on each side of zero. Finer buckets are merged, because each one is a Prometheus series."""


@dataclass(slots=True)
class ExponentialBuckets:
    """The buckets of one exponential histogram point, or of the sum of several."""

    scale: int = 20
    zero_threshold: float = 0.0
    zero_count: int = 0
    positive: Counts = field(default_factory=dict)
    negative: Counts = field(default_factory=dict)

    @classmethod
    def of(cls, point: ExponentialHistogramDataPoint) -> "ExponentialBuckets":
        sides = [
            {side.offset + i: count for i, count in enumerate(side.bucket_counts) if count}
            for side in (point.positive, point.negative)
        ]
        return cls(point.scale, point.zero_threshold, point.zero_count, *sides)

    def __add__(self, other: "ExponentialBuckets") -> "ExponentialBuckets":
        scale = min(self.scale, other.scale)
        left, right = self._at_scale(scale), other._at_scale(scale)
        total = ExponentialBuckets(
            scale,
            max(self.zero_threshold, other.zero_threshold),
            self.zero_count + other.zero_count,
            _added(left.positive, right.positive),
            _added(left.negative, right.negative),
        )
        return total.limited_to(_MAX_BUCKETS)

    def limited_to(self, buckets: int) -> "ExponentialBuckets":
        """The same counts at the finest scale where neither side spans more than `buckets` buckets."""
        scale = self.scale
        while any(_span(side, self.scale - scale) > buckets for side in (self.positive, self.negative)):
            scale -= 1
        return self._at_scale(scale)

    def _at_scale(self, scale: int) -> "ExponentialBuckets":
        shift = self.scale - scale
        if not shift:
            return self
        sides = (_merged(self.positive, shift), _merged(self.negative, shift))
        return ExponentialBuckets(scale, self.zero_threshold, self.zero_count, *sides)

    def classic(self) -> tuple[list[float], list[int]]:
        """Ascending finite bounds, shape (n,), and cumulative counts, shape (n + 1,). The last count is the total.

        The outer edges of the outermost buckets are among the bounds. Without them, `histogram_quantile` would
        interpolate from zero.
        """
        shown = self.limited_to(MAX_SHOWN_BUCKETS)
        negative, positive, scale = shown.negative, shown.positive, shown.scale
        edges = [(0.0 - _bound(index, scale), negative.get(index, 0)) for index in reversed(_range(negative, above=1))]
        lowest = _bound(min(positive), scale) if positive else self.zero_threshold
        edges.append((min(self.zero_threshold, lowest), self.zero_count))
        edges.append((lowest, 0))
        edges += [(_bound(index + 1, scale), positive.get(index, 0)) for index in _range(positive)]
        return _cumulative(edges)


def _bound(index: int, scale: int) -> float:
    exponent = index * 2.0**-scale
    return float(2.0**exponent) if exponent < 1024 else math.inf


def _range(side: Counts, above: int = 0) -> range:
    return range(min(side), max(side) + 1 + above) if side else range(0)


def _span(side: Counts, shift: int) -> int:
    return (max(side) >> shift) - (min(side) >> shift) + 1 if side else 0


def _merged(side: Counts, shift: int) -> Counts:
    counts: Counts = {}
    for index, count in side.items():
        counts[index >> shift] = counts.get(index >> shift, 0) + count
    return counts


def _added(left: Counts, right: Counts) -> Counts:
    return {index: left.get(index, 0) + right.get(index, 0) for index in left.keys() | right.keys()}


def _cumulative(edges: list[tuple[float, int]]) -> tuple[list[float], list[int]]:
    counts: dict[float, int] = {}
    for bound, count in edges:  # bounds beyond the range of a float are equal: 0 or infinity
        counts[bound] = counts.get(bound, 0) + count
    totals = list(accumulate(counts.values()))
    finite = [(bound, total) for bound, total in zip(counts, totals, strict=True) if math.isfinite(bound)]
    return [bound for bound, _ in finite], [*(total for _, total in finite), totals[-1]]
