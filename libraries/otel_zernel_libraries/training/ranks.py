"""The rule that compares the ranks of one job: finds the rank that delays the others, or a slow link.

No clocks are compared. The ranks of a job step together, so in one time all of them take about the same number of
steps. A rank that arrives late at a collective waits least, while the others wait for it. Its lateness is the longest
wait of any rank minus its own. The shortest wait of any rank is the transfer itself: if it is long, the link is slow.
"""

from collections.abc import Mapping
from typing import NamedTuple


class RankTime(NamedTuple):
    """The time of one rank, in s."""

    steps: int
    """Training steps."""
    total_s: float
    wait_s: float
    """The part of it in which the rank waited for collectives."""


class JobVerdict(NamedTuple):
    """The verdict on a job. Seconds are per training step: all time of the ranks, and their waits in all of it, divided
    by the number of their training steps."""

    name: str
    straggler: int | None
    """The latest rank, if the verdict is `straggler`."""
    lateness_s: Mapping[int, float]
    """By rank: the longest wait of any rank minus the rank's own wait. Empty if no ranks were compared."""
    transfer_s: float
    """The shortest wait of any rank."""
    step_s: float
    """The time from one training step to the next, with evaluations and other work between them."""

    @property
    def latest(self) -> int:
        """The rank that the others wait for longest."""
        return max(self.lateness_s, key=lambda rank: self.lateness_s[rank])


NOT_COMPARED = JobVerdict("none", None, {}, 0.0, 0.0)


def compare_ranks(ranks: Mapping[int, RankTime], straggler: float, slow_link: float) -> JobVerdict:
    """The verdict on the times of each rank. At least two ranks must have trained. `straggler` and `slow_link` are the
    limits of the lateness and of the shortest wait, as shares of a step."""
    trained = {rank: one for rank, one in ranks.items() if one.steps and one.total_s}
    if len(trained) < 2:
        return NOT_COMPARED
    waits = {rank: one.wait_s / one.steps for rank, one in sorted(trained.items())}
    step = sum(one.total_s / one.steps for one in trained.values()) / len(trained)
    lateness = {rank: max(waits.values()) - wait for rank, wait in waits.items()}
    verdict = JobVerdict("balanced", None, lateness, min(waits.values()), step)
    late, is_slow = lateness[verdict.latest], verdict.transfer_s / step >= slow_link
    if late / step >= straggler and (not is_slow or late >= verdict.transfer_s):
        return verdict._replace(name="straggler", straggler=verdict.latest)
    return verdict._replace(name="slow_link") if is_slow else verdict
