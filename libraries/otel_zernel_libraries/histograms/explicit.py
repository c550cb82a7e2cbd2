"""The amount in a histogram point with explicit bounds.

Two points of a series may have different bounds: `ebpf` and `phases` emit a bound only where a value is near. A count
up to a bound is known if the amount has the bound, or if the bound divides an empty bucket. Only known counts decide
whether there was a reset. Where a bound divides values, their places are estimated; totals stay exact.
"""

import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import add, lt, sub
from typing import Any, Self

from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint

from otel_zernel_libraries.histograms.amounts import LARGEST_COUNT, Extremes, MalformedAmount, NotComparable

MOST_BOUNDS = 2000
"""Bounds of a series. Beyond them, the closest ones are removed: the counts up to the others stay exact."""
_DENSE = MOST_BOUNDS // 2
"""Bounds that are left then. From so many on, a new bound divides empty buckets only: a bound that was removed from
among values never comes back, or the count up to it would seem to decrease."""


def united(bounds: Sequence[float], counts: Sequence[int], other: Sequence[float]) -> list[float]:
    """The bounds of the sum of an amount, with `bounds` and `counts`, and one with the bounds `other`."""
    added = set(other).difference(bounds)
    if len(bounds) >= _DENSE:
        empty = _empty_places(bounds, counts, sorted(added))
        added.intersection_update(empty)
    return sorted(added.union(bounds))


def _empty_places(bounds: Sequence[float], counts: Sequence[int], wanted: Sequence[float]) -> list[float]:
    """Those of the wanted bounds, in ascending order, that divide an empty bucket."""
    place, empty = 0, []
    for bound in wanted:
        while place < len(bounds) and bounds[place] < bound:
            place += 1
        if not counts[place]:
            empty.append(bound)
    return empty


def thinned(bounds: list[float], counts: list[int]) -> tuple[list[float], list[int]]:
    """The same counts with half of `MOST_BOUNDS` if there are more bounds.

    Bounds between empty buckets go first, then those whose joined buckets are narrowest for their distance from zero.
    """
    if len(bounds) <= MOST_BOUNDS:
        return bounds, counts
    while len(bounds) > _DENSE:
        gone = _least_needed(bounds, counts, len(bounds) - _DENSE)
        kept = [place for place in range(len(bounds)) if place not in gone]
        ends = [-1, *kept, len(bounds)]
        counts = [sum(counts[before + 1 : end + 1]) for before, end in pairwise(ends)]
        bounds = [bounds[place] for place in kept]
    return bounds, counts


def _least_needed(bounds: Sequence[float], counts: Sequence[int], most: int) -> set[int]:
    """The places of bounds to remove: at most `most` of the narrower half, and no two neighbours."""
    gone: set[int] = set()
    inner = sorted(range(1, len(bounds) - 1), key=lambda place: _width(bounds, counts, place))
    for place in inner[: len(inner) // 2]:
        if len(gone) >= most:
            break
        if place - 1 not in gone and place + 1 not in gone:
            gone.add(place)
    return gone


def _width(bounds: Sequence[float], counts: Sequence[int], place: int) -> float:
    """The width of the two buckets around a bound, in relation to their distance from zero; 0 if both are empty."""
    low, high = bounds[place - 1], bounds[place + 1]
    return (high - low) / max(abs(low), abs(high)) if counts[place] or counts[place + 1] else 0.0


class AddedCounts:
    """The counts that were added to the buckets of a histogram since an amount with other bounds.

    Between two bounds up to which both counts are known, the added values are spread like all values there.
    """

    def __init__(self) -> None:
        self._up_to: list[int] = []
        """The added values up to each bound of the histogram."""
        self._waiting: list[int] = []
        """All values up to each bound since the last known one."""
        self._known, self._known_added = 0, 0
        """All values, and the added ones, up to the last known bound."""

    def take(self, now: tuple[int, int], before: tuple[int, int], *, is_own: bool) -> bool:
        """Takes the next bound, with the limits of the counts up to it. `is_own` if the histogram has the bound.

        Returns whether the counts are possible without a reset.
        """
        if is_own:
            self._waiting.append(now[0])
        if now[0] < now[1] or before[0] < before[1]:
            return True
        values, added = now[0] - self._known, now[0] - before[0] - self._known_added
        if added < 0:
            return False
        for up_to in self._waiting:
            share = added * (up_to - self._known) // values if values else 0
            self._up_to.append(self._known_added + share)
        self._waiting.clear()
        self._known = now[0]
        self._known_added = now[0] - before[0]
        return True

    def counts(self) -> list[int]:
        """The counts by bucket."""
        return [after - before for before, after in pairwise((0, *self._up_to))]


_MOST_BUCKETS = 10_000
"""Buckets of one point. A point with more of them is malformed: reading it would block the event loop."""


def bounds_of(point: HistogramDataPoint) -> "array[float]":
    """The bounds of a point. Raises `MalformedAmount`."""
    buckets = len(point.bucket_counts)
    if buckets > _MOST_BUCKETS:
        raise MalformedAmount
    bounds = array("d", point.explicit_bounds)
    if buckets != len(bounds) + 1 and (buckets or bounds):
        raise MalformedAmount
    if not all(map(math.isfinite, bounds)) or not all(map(lt, bounds, bounds[1:])):
        raise MalformedAmount
    return bounds


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
        return cls(bounds_of(point), array("Q", point.bucket_counts), point.count, Extremes.of(point))

    @property
    def weight(self) -> int:
        return 1 + 2 * len(self._counts)

    @property
    def _is_empty(self) -> bool:
        return not self._count and not any(self._counts)

    def plus(self, other: Self) -> Self | None:
        if self._is_empty or other._is_empty:
            return other if self._is_empty else self
        count, extremes = self._count + other._count, self._extremes.plus(other._extremes)
        if not self._counts or not other._counts:  # one of them has only a count
            return self._with((), (), count, extremes)
        if self._bounds == other._bounds:
            return self._with(self._bounds, map(add, self._counts, other._counts), count, extremes)
        bounds = united(self._bounds, self._counts, other._bounds)
        up_to = map(add, self._up_to_each(bounds), other._up_to_each(bounds))
        counts = [after - before for before, after in pairwise((0, *up_to))]
        return self._with(*thinned(bounds, counts), count, extremes)

    def minus(self, earlier: Any) -> Self | None:
        if not isinstance(earlier, ExplicitAmount):
            raise NotComparable
        if earlier._is_empty:
            return self
        if self._count < earlier._count:
            return None
        count, extremes = self._count - earlier._count, self._extremes.minus(earlier._extremes)
        if not self._counts or not earlier._counts:  # one of them has only a count
            return self._with((), (), count, extremes)
        if self._bounds == earlier._bounds:
            return self._with(self._bounds, map(sub, self._counts, earlier._counts), count, extremes)
        counts = self._counts_since(earlier)
        return None if counts is None else self._with(self._bounds, counts, count, extremes)

    def within(self, whole: "ExplicitAmount") -> "ExplicitAmount":
        """The same values, whose minimum and maximum are no wider than those of a greater amount."""
        lowest, highest = whole._extremes.lowest, whole._extremes.highest
        return ExplicitAmount(self._bounds, self._counts, self._count, Extremes(self._extremes.total, lowest, highest))

    def at(self, bounds: Sequence[float]) -> Self:
        """The values in buckets with these bounds. They are taken as spread evenly in their own ones."""
        if not self._counts:
            return self
        counts = [after - before for before, after in pairwise((0, *self._up_to_each(bounds)))]
        return type(self)(bounds, counts, self._count, self._extremes)

    def _with(self, bounds: Sequence[float], counts: Any, count: int, extremes: Extremes) -> Self | None:
        """An amount with these counts; None if one is negative, or larger than a point can hold."""
        try:
            held = counts if isinstance(counts, array) else array("Q", counts)
        except OverflowError:
            return None
        return type(self)(bounds, held, count, extremes) if count <= LARGEST_COUNT else None

    def _counts_since(self, earlier: "ExplicitAmount") -> list[int] | None:
        """The counts of the values that an earlier amount with other bounds does not have; None after a reset."""
        own = set(self._bounds)
        now, before = self._reader(), earlier._reader()
        added = AddedCounts()
        for bound in sorted(own.union(earlier._bounds)):
            if not added.take(now.limits(bound), before.limits(bound), is_own=bound in own):
                return None
        if not added.take((now.total, now.total), (before.total, before.total), is_own=True):
            return None
        return added.counts()

    def _up_to_each(self, bounds: Sequence[float]) -> list[int]:
        """The number of values up to each bound, estimated where a bound divides them, and of all values."""
        reader = self._reader()
        return [*map(reader.estimate, bounds), reader.total]

    def _reader(self) -> "_Cumulative":
        return _Cumulative(self._bounds, self._counts, self._extremes)

    def write(self, point: HistogramDataPoint) -> None:
        point.count = self._count
        self._extremes.write(point)
        if list(point.explicit_bounds) != self._bounds.tolist():
            point.explicit_bounds[:] = self._bounds
        point.bucket_counts[:] = self._counts


class _Cumulative:
    """The number of values up to any bound."""

    def __init__(self, bounds: Sequence[float], counts: Sequence[int], extremes: Extremes) -> None:
        self._bounds = bounds
        self._counts = counts
        self._extremes = extremes
        self._below = [*accumulate(counts, initial=0)]
        """The values below each bucket, and of all buckets."""

    @property
    def total(self) -> int:
        return self._below[-1]

    def limits(self, bound: float) -> tuple[int, int]:
        """The least and the greatest possible number of values up to a bound. They are equal if it is known."""
        place = bisect_left(self._bounds, bound)
        above = self._below[place + 1]
        return (above if place < len(self._bounds) and self._bounds[place] == bound else self._below[place]), above

    def estimate(self, bound: float) -> int:
        """The number of values up to a bound. The values of a bucket are taken as spread evenly."""
        least, greatest = self.limits(bound)
        if least == greatest:
            return least
        place = bisect_left(self._bounds, bound)
        low = self._bounds[place - 1] if place else self._extremes.lowest
        high = self._bounds[place] if place < len(self._bounds) else self._extremes.highest
        if high is not None and bound >= high:
            return greatest
        if low is None or high is None or not low < bound:
            return least
        share = (bound - low) / (high - low)
        return min(least + int((greatest - least) * share), greatest)
