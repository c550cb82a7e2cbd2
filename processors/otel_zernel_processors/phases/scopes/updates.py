"""Which changes of tensors outside the scope of an optimizer are its updates, and which average the weights."""

from collections.abc import Iterable
from typing import Final

from otel_zernel_processors.phases.intake.intervals import AVERAGE, IN_PLACE, ThreadInterval

_OUTSIDE = frozenset({"update", IN_PLACE})
_FEWEST: Final = 4
"""Fewer changes of one tensor each are no average: a metric adds to its sums."""


def with_updates(intervals: list[ThreadInterval], *, by_hand: bool) -> list[ThreadInterval]:
    """The intervals of a step, in the order of their ends, with the kind of each update.

    After an optimizer, other weights are averaged. Changes of tensors after a backward pass are an update if no
    optimizer of the thread shows: `by_hand`. Else they clip gradients, and show nothing.
    """
    if not any(one.kind in _OUTSIDE for one in intervals):
        return intervals
    return list(_settled(intervals, by_hand=by_hand))


def averages(interval: ThreadInterval) -> bool:
    """Whether it is an average, if it follows an optimizer."""
    count = interval.operators.count if interval.operators else 0
    return interval.kind == "update" or (interval.kind == IN_PLACE and count >= _FEWEST)


def _settled(intervals: Iterable[ThreadInterval], *, by_hand: bool) -> Iterable[ThreadInterval]:
    is_optimized = False
    for one in intervals:
        if one.kind in ("backward", "optimizer"):
            is_optimized = one.kind == "optimizer"
        if one.kind not in _OUTSIDE:
            yield one
        elif is_optimized:
            if averages(one):
                yield one._replace(kind=AVERAGE)
        elif one.kind == "update" or by_hand:
            yield one._replace(kind="update")
