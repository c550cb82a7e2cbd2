"""The amount in an exponential histogram point."""

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import add
from typing import Any, Self

from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, HistogramDataPoint

from otel_zernel_libraries.histograms.amounts import LARGEST_COUNT, Extremes, MalformedAmount, NotComparable
from otel_zernel_libraries.histograms.explicit import ExplicitAmount
from otel_zernel_libraries.histograms.quantiles import buckets_of

Counts = dict[int, int]
"""The counts of the non-empty buckets on one side of zero, by index."""

MOST_BUCKETS = 160
"""Buckets on each side of zero: the default of the OpenTelemetry SDKs. With more, the scale decreases."""


def added(left: Counts, right: Counts) -> Counts:
    """The sum of two sides at one scale."""
    return {index: left.get(index, 0) + right.get(index, 0) for index in left.keys() | right.keys()}


def subtracted(now: Counts, before: Counts) -> Counts:
    """The differences of two sides at one scale that are not zero."""
    changed = ((index, now.get(index, 0) - before.get(index, 0)) for index in now.keys() | before.keys())
    return {index: count for index, count in changed if count}


def merged(side: Counts, shift: int) -> Counts:
    """The side at a scale that is lower by `shift`."""
    if not shift:
        return side
    counts: Counts = {}
    for index, count in side.items():
        counts[index >> shift] = counts.get(index >> shift, 0) + count
    return counts


def limited(scale: int, positive: Counts, negative: Counts, most: int = MOST_BUCKETS) -> tuple[int, Counts, Counts]:
    """The finest scale at which neither side spans more than `most` buckets, and the sides at it."""
    shift = 0
    while any(side and (max(side) >> shift) - (min(side) >> shift) >= most for side in (positive, negative)):
        shift += 1
    return scale - shift, merged(positive, shift), merged(negative, shift)


def above(side: Counts, scale: int, threshold: float) -> tuple[int, Counts]:
    """The count of the buckets whose middle is within a threshold, and the other buckets."""
    within = {index for index in side if _middle(index, scale) <= threshold}
    return sum(side[index] for index in within), {index: side[index] for index in side if index not in within}


def _middle(index: int, scale: int) -> float:
    """The geometric middle of a bucket."""
    try:
        return float(2.0 ** math.ldexp(index + 0.5, -scale))
    except OverflowError:
        return math.inf if index > 0 else 0.0


_MOST_RECEIVED = 10_000
"""Buckets of one point. A point with more of them is malformed: reading it would block the event loop."""
_SCALES = range(-10, 21)
"""The scales of the OpenTelemetry SDKs."""

_FINEST = 10
"""The scale of single values from explicit buckets: 0.07 % wide, as exact as the bounds of `ebpf` and `phases`."""
_NARROW = 0.005
"""The width of a bucket, in relation to its bounds, below which all its values are taken for its middle."""
_PLACES = 32
"""The most values that stand for those of a wide bucket."""

_ZEROS = array("Q", [0] * MOST_BUCKETS)


class ExponentialSide:
    """The buckets on one side of zero: the index of the first, and the count of each."""

    __slots__ = ("counts", "first")

    def __init__(self, first: int, counts: Sequence[int]) -> None:
        self.first = first
        self.counts = counts if isinstance(counts, array) else array("Q", counts)

    @classmethod
    def of(cls, counted: Counts) -> Self:
        first = min(counted, default=0)
        counts = [0] * (max(counted) - first + 1 if counted else 0)
        for index, count in counted.items():
            counts[index - first] = count
        return cls(first, counts)

    def plus(self, other: Self) -> Self | None:
        """The sum at the same scale; None if it has too many buckets, or counts beyond the range."""
        if not self.counts or not other.counts:
            return self if self.counts else other
        first = min(self.first, other.first)
        if max(self.end, other.end) - first > MOST_BUCKETS:
            return None
        left, right = self._from(first, other.end), other._from(first, self.end)
        try:
            return type(self)(first, array("Q", map(add, left, right)))
        except OverflowError:
            return None

    @property
    def end(self) -> int:
        """The index after the last bucket."""
        return self.first + len(self.counts)

    def _from(self, first: int, end: int) -> "array[int]":
        """The counts from an earlier index on, at least to before `end`."""
        return _ZEROS[: self.first - first] + self.counts + _ZEROS[: max(end - self.end, 0)]

    def at(self, shift: int) -> Counts:
        """The counts at a scale that is lower by `shift`."""
        counted: Counts = {}
        for index, count in enumerate(self.counts, self.first):
            if count:
                counted[index >> shift] = counted.get(index >> shift, 0) + count
        return counted


class ExponentialAmount:
    """Counts by bucket, with at most `MOST_BUCKETS` on each side."""

    __slots__ = ("_count", "_extremes", "_negative", "_positive", "_scale", "_threshold", "_zeros")

    def __init__(
        self,
        scale: int,
        zero: tuple[float, int],
        sides: tuple[ExponentialSide, ExponentialSide],
        count: int,
        extremes: Extremes,
    ) -> None:
        """`zero` is the threshold and the count of the zero bucket. `sides` are the positive and the negative one."""
        self._scale = scale
        self._threshold, self._zeros = zero
        self._positive, self._negative = sides
        self._count = count
        self._extremes = extremes

    @classmethod
    def of(cls, point: ExponentialHistogramDataPoint, *, monotonic: bool) -> Self:
        sides = point.positive, point.negative
        if max(len(side.bucket_counts) for side in sides) > _MOST_RECEIVED or point.scale not in _SCALES:
            raise MalformedAmount
        if not 0 <= point.zero_threshold < math.inf:
            raise MalformedAmount
        positive, negative = (ExponentialSide(side.offset, side.bucket_counts) for side in sides)
        zero = point.zero_threshold, point.zero_count
        return cls(point.scale, zero, (positive, negative), point.count, Extremes.of(point))

    @property
    def weight(self) -> int:
        return 2 + len(self._positive.counts) + len(self._negative.counts)

    @property
    def _is_empty(self) -> bool:
        return not (self._count or self._zeros or self._positive.counts or self._negative.counts)

    def plus(self, other: Self) -> Self | None:
        if self._is_empty or other._is_empty:
            return other if self._is_empty else self
        if self._scale == other._scale and self._threshold == other._threshold:
            positive, negative = self._positive.plus(other._positive), self._negative.plus(other._negative)
            count, zeros = self._count + other._count, self._zeros + other._zeros
            if positive and negative and max(count, zeros) <= LARGEST_COUNT:
                zero, extremes = (self._threshold, zeros), self._extremes.plus(other._extremes)
                return type(self)(self._scale, zero, (positive, negative), count, extremes)
        return self._plus_other(other)

    def _plus_other(self, other: Self) -> Self | None:
        """The sum with an amount of another scale or threshold, or beyond the limit of buckets."""
        scale, threshold = min(self._scale, other._scale), max(self._threshold, other._threshold)
        left, right = self._at(scale, threshold), other._at(scale, threshold)
        up, down = (added(first, two) for first, two in zip(left[1:], right[1:], strict=True))
        count, zeros = self._count + other._count, left[0] + right[0]
        scale, up, down = limited(scale, up, down)
        if max(count, zeros, *up.values(), *down.values()) > LARGEST_COUNT:
            return None
        sides = ExponentialSide.of(up), ExponentialSide.of(down)
        return type(self)(scale, (threshold, zeros), sides, count, self._extremes.plus(other._extremes))

    def minus(self, earlier: Any) -> Self | None:
        """At the coarser of the two scales, with the greater of the two thresholds."""
        if not isinstance(earlier, ExponentialAmount):
            raise NotComparable
        if earlier._is_empty:
            return self
        scale, threshold = min(self._scale, earlier._scale), max(self._threshold, earlier._threshold)
        (zeros, *now), (zeros_before, *before) = self._at(scale, threshold), earlier._at(scale, threshold)
        count, zeros = self._count - earlier._count, zeros - zeros_before
        positive, negative = (subtracted(later, former) for later, former in zip(now, before, strict=True))
        if min(count, zeros, *positive.values(), *negative.values()) < 0:
            return None
        sides = ExponentialSide.of(positive), ExponentialSide.of(negative)
        return type(self)(scale, (threshold, zeros), sides, count, self._extremes.minus(earlier._extremes))

    def _at(self, scale: int, threshold: float) -> tuple[int, Counts, Counts]:
        """The zero count and the counts of both sides, at a lower scale and with a higher threshold."""
        zeros, shift = self._zeros, self._scale - scale
        sides = [self._positive.at(shift), self._negative.at(shift)]
        if threshold > self._threshold:
            within = [above(side, scale, threshold) for side in sides]
            zeros, sides = zeros + sum(count for count, _ in within), [side for _, side in within]
        return zeros, sides[0], sides[1]

    def write(self, point: ExponentialHistogramDataPoint) -> None:
        point.count, point.scale = self._count, self._scale
        point.zero_threshold, point.zero_count = self._threshold, self._zeros
        self._extremes.write(point)
        for side, kept in ((point.positive, self._positive), (point.negative, self._negative)):
            side.offset = kept.first
            side.bucket_counts[:] = kept.counts


def exponential_of(amount: ExplicitAmount) -> ExponentialAmount:
    """The values of explicit buckets in exponential ones, at the finest scale that their range allows.

    Values are taken as spread evenly in their bucket. A bucket as narrow as those of `ebpf` and `phases` has one place.
    """
    point = HistogramDataPoint()
    amount.write(point)
    buckets = [bucket for bucket in buckets_of(point) if bucket[2]]
    if not buckets and point.count:  # only the count and the sum are known
        mean = point.sum / point.count
        buckets = [(mean, mean, point.count)]
    zeros, positive, negative = 0, Counter[int](), Counter[int]()
    for low, high, count in buckets:
        for value, times in _spread(low, high, count):
            if value > 0:
                positive[_index(value)] += times
            elif value < 0:
                negative[_index(-value)] += times
            else:
                zeros += times
    scale, up, down = limited(_FINEST, positive, negative)
    sides = ExponentialSide.of(up), ExponentialSide.of(down)
    return ExponentialAmount(scale, (0.0, zeros), sides, point.count, Extremes.of(point))


def _spread(low: float, high: float, count: int) -> Iterator[tuple[float, int]]:
    """Values of a bucket, and how often each occurs."""
    if not math.isfinite(low + high):
        low = high = next((end for end in (low, high) if math.isfinite(end)), 0.0)
    width = high - low
    places = 1 if width <= _NARROW * max(abs(low), abs(high)) else min(count, _PLACES)
    for place in range(places):
        yield low + width * (place + 0.5) / places, count * (place + 1) // places - count * place // places


def _index(value: float) -> int:
    """The index of a positive value at the scale `_FINEST`."""
    return math.ceil(math.log2(value) * (1 << _FINEST)) - 1
