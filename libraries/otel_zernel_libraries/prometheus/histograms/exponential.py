"""Exponential histograms: their edges, their sums, and coarser scales."""

import math
from dataclasses import dataclass, field

from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint

from otel_zernel_libraries.histograms.exponential import MOST_BUCKETS, Counts, above, added, limited, merged

_ROOTS = (
    *(1.0, 1.0905077326652577, 1.189207115002721, 1.2968395546510096),
    *(1.4142135623730951, 1.5422108254079407, 1.681792830507429, 1.8340080864093424),
)
"""2^(n/8) for n from 0 to 7. Constants, because the rounding of `pow` may differ between two machines."""
_ROOTS_SCALE = 3
"""The scale of `_ROOTS`: 2^3 edges for each power of two."""
_EXPONENTS = range(-1074, 1024)
"""The binary exponents of finite, positive doubles."""


def edge(index: int, scale: int) -> float:
    """base^index. It is the same double for every scale that has this edge.

    An edge beyond the range of doubles is 0 or infinity.
    """
    while scale > _ROOTS_SCALE and index % 2 == 0:
        index, scale = index // 2, scale - 1
    if scale < 0:
        exponent, root = index << -scale, 1.0
    else:
        exponent, rest = index >> scale, index & ((1 << scale) - 1)
        root = _ROOTS[rest << (_ROOTS_SCALE - scale)] if scale <= _ROOTS_SCALE else 2.0 ** (rest / (1 << scale))
    if exponent not in _EXPONENTS:
        return 0.0 if exponent < 0 else math.inf
    return math.ldexp(root, exponent)


@dataclass(slots=True)
class ExponentialBuckets:
    """The buckets of one exponential histogram point, or of the sum of several."""

    scale: int = 20
    zero_threshold: float = 0.0
    zero_count: int = 0
    positive: Counts = field(default_factory=dict)
    negative: Counts = field(default_factory=dict)
    nan_count: int = field(default=0, kw_only=True)
    """Values that are no number: they are in no bucket, as in Prometheus."""

    @classmethod
    def of(cls, point: ExponentialHistogramDataPoint) -> "ExponentialBuckets":
        sides = [
            {side.offset + i: count for i, count in enumerate(side.bucket_counts) if count}
            for side in (point.positive, point.negative)
        ]
        buckets = cls(point.scale, point.zero_threshold, point.zero_count, *sides)
        if math.isnan(point.sum):
            buckets.nan_count = max(0, point.count - buckets.count)
        return buckets

    @property
    def count(self) -> int:
        """The number of values."""
        return self.zero_count + sum(self.positive.values()) + sum(self.negative.values()) + self.nan_count

    def __add__(self, other: "ExponentialBuckets") -> "ExponentialBuckets":
        scale, threshold = min(self.scale, other.scale), max(self.zero_threshold, other.zero_threshold)
        left, right = self.at_scale(scale)._above(threshold), other.at_scale(scale)._above(threshold)
        sides = added(left.positive, right.positive), added(left.negative, right.negative)
        zeros, nans = left.zero_count + right.zero_count, left.nan_count + right.nan_count
        total = ExponentialBuckets(scale, threshold, zeros, *sides, nan_count=nans)
        return total.limited_to(MOST_BUCKETS)

    def limited_to(self, buckets: int) -> "ExponentialBuckets":
        """The same counts at the finest scale where neither side spans more than `buckets` buckets."""
        scale, *sides = limited(self.scale, self.positive, self.negative, buckets)
        return ExponentialBuckets(scale, self.zero_threshold, self.zero_count, *sides, nan_count=self.nan_count)

    def at_scale(self, scale: int) -> "ExponentialBuckets":
        """The same counts at a scale that is not finer."""
        sides = (merged(side, self.scale - scale) for side in (self.positive, self.negative))
        return ExponentialBuckets(scale, self.zero_threshold, self.zero_count, *sides, nan_count=self.nan_count)

    def _above(self, threshold: float) -> "ExponentialBuckets":
        """The same counts with a threshold that is not lower."""
        if threshold == self.zero_threshold:
            return self
        (up, positive), (down, negative) = (
            above(side, self.scale, threshold) for side in (self.positive, self.negative)
        )
        zeros = self.zero_count + up + down
        return ExponentialBuckets(self.scale, threshold, zeros, positive, negative, nan_count=self.nan_count)
