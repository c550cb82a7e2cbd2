"""The amount in a histogram point with explicit bounds."""

import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Self

from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint

from otel_zernel.temporality.amounts import LARGEST_COUNT, Extremes, MalformedAmount

MOST_BOUNDS = 2000
"""Bounds of a series. Beyond them, every second bound is removed: the counts up to the others stay exact."""
_MOST_BUCKETS = 10_000
"""Buckets of one point. A point with more of them is malformed: reading it would block the event loop."""


class ExplicitAmount:
    """Counts by bucket. Bucket i reaches from bounds[i - 1] (exclusive) to bounds[i] (inclusive)."""

    __slots__ = ("_bounds", "_count", "_counts", "_extremes")

    def __init__(self, bounds: Sequence[float], counts: Sequence[int], count: int, extremes: Extremes) -> None:
        """`counts` has one more item than `bounds`, or is empty if only the count is known."""
        self._bounds = bounds if isinstance(bounds, array) else array("d", bounds)
        self._counts = counts if isinstance(counts, array) else array("Q", counts)
        self._count = count
        self._extremes = extremes

    @classmethod
    def of(cls, point: HistogramDataPoint, *, monotonic: bool) -> Self:
        if len(point.bucket_counts) > _MOST_BUCKETS:
            raise MalformedAmount
        bounds, counts = array("d", point.explicit_bounds), array("Q", point.bucket_counts)
        if len(counts) != len(bounds) + 1 and (counts or bounds):
            raise MalformedAmount
        if not all(map(math.isfinite, bounds)) or not all(low < high for low, high in pairwise(bounds)):
            raise MalformedAmount
        return cls(bounds, counts, point.count, Extremes.of(point))

    @property
    def weight(self) -> int:
        return 1 + 2 * len(self._counts)

    def plus(self, other: Self) -> Self | None:
        if not self._counts or not other._counts:  # one of them has only a count
            return self._with((), (), self._count + other._count, self._extremes.plus(other._extremes))
        bounds: Sequence[float] = self._bounds
        if bounds != other._bounds:
            bounds = sorted({*bounds, *other._bounds})
            while len(bounds) > MOST_BOUNDS:
                bounds = bounds[1::2]
        pairs = zip(self._at(bounds), other._at(bounds), strict=True)
        counts = [left + right for left, right in pairs]
        return self._with(bounds, counts, self._count + other._count, self._extremes.plus(other._extremes))

    def minus(self, earlier: Self) -> Self | None:
        if self._count < earlier._count or self._bounds != earlier._bounds or len(self._counts) != len(earlier._counts):
            return None
        counts = [now - before for now, before in zip(self._counts, earlier._counts, strict=True)]
        if min(counts, default=0) < 0:
            return None
        return self._with(self._bounds, counts, self._count - earlier._count, self._extremes.minus(earlier._extremes))

    def _with(self, bounds: Sequence[float], counts: Sequence[int], count: int, extremes: Extremes) -> Self | None:
        if max(count, *counts, 0) > LARGEST_COUNT:
            return None
        return type(self)(bounds, counts, count, extremes)

    def _at(self, bounds: Sequence[float]) -> Sequence[int]:
        """The counts in buckets with other bounds: the count of a bucket goes to the one with its upper bound.

        It goes to the next higher bound if the others lack it.
        """
        if bounds == self._bounds:
            return self._counts
        counts = [0] * (len(bounds) + 1)
        for upper, count in zip(self._bounds, self._counts, strict=False):
            counts[bisect_left(bounds, upper)] += count
        counts[-1] += self._counts[-1]
        return counts

    def write(self, point: HistogramDataPoint) -> None:
        point.count = self._count
        self._extremes.write(point)
        if list(point.explicit_bounds) != self._bounds.tolist():
            point.explicit_bounds[:] = self._bounds
        point.bucket_counts[:] = self._counts
