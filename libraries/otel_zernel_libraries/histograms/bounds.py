"""Bounds of explicit histograms that differ from point to point: their union, and the counts between two of them."""

from collections.abc import Sequence
from itertools import pairwise

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
        self._known, self._known_added = now[0], now[0] - before[0]
        return True

    def counts(self) -> list[int]:
        """The counts by bucket."""
        return [after - before for before, after in pairwise((0, *self._up_to))]
