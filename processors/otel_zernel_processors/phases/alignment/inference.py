"""Aligns the steps of ranks by time, for collectives whose numbers are unknown.

The ranks leave a collective together, so their steps end the wait for it at about the same time. Clocks are compared,
so this is for ranks on one host.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from otel_zernel_processors.phases.alignment.rank_step import RankStep

LATEST = 64
"""Steps of each rank that are compared."""
_FEWEST = 3
"""Fewer steps prove nothing."""
_AGREEMENT = 0.8
"""The share of the compared steps that must lead to the same offset."""
_NEAR = 0.25
"""Two ranks met in the same step if the times differ by less than this share of a step."""


class Meeting(NamedTuple):
    """The end of a step's last wait for a collective."""

    time: int
    """ns since 1970."""
    number: int
    """`RankStep.meeting`."""


def meetings_of(steps: Sequence[RankStep]) -> list[Meeting]:
    """The latest meetings in these steps, in order."""
    return [Meeting(step.met, step.meeting) for step in steps if step.met][-LATEST:]


def offset(reference: Sequence[Meeting], other: Sequence[Meeting]) -> int | None:
    """The difference between the numbers of two ranks for the same meeting: the number of `reference` minus that of
    `other`. None if the times leave a doubt."""
    if len(reference) < _FEWEST or len(other) < _FEWEST:
        return None
    near = _NEAR * median(after.time - before.time for before, after in pairwise(reference))
    first, last = reference[0].time - near, reference[-1].time + near
    compared = [meeting for meeting in other if first <= meeting.time <= last]
    votes = Counter(nearest.number - one.number for one in compared if (nearest := _near(reference, one, near)))
    best, agreeing = next(iter(votes.most_common(1)), (0, 0))
    enough = len(compared) >= _FEWEST and agreeing >= _AGREEMENT * len(compared)
    return best if enough else None


def _near(reference: Sequence[Meeting], one: Meeting, near: float) -> Meeting | None:
    """The meeting of the reference at the same time; None if there is none."""
    at = bisect_left(reference, (one.time,))
    nearest = min(reference[max(at - 1, 0) : at + 1], key=lambda meeting: abs(meeting.time - one.time))
    return nearest if abs(nearest.time - one.time) <= near else None
