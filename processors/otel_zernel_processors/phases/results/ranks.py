"""How late each rank of a job is, and how long the transfers between ranks take.

No clocks are compared. The ranks of a job step together, so in one time all of them take about the same number of
steps. A rank that arrives late at a collective waits least, while the others wait for it. Its lateness is the longest
wait of any rank minus its own. The shortest wait of any rank is the transfer itself: if it is long, the link is slow.
"""

from collections.abc import Mapping
from typing import NamedTuple

from otel_zernel_processors.phases.results.totals import PhaseTotals


class RankTimes(NamedTuple):
    """Seconds per training step: all time of the ranks, and their waits in all of it, divided by the number of their
    training steps."""

    lateness: Mapping[int, float]
    """By rank."""
    transfer: float
    step: float
    """The time from one training step to the next, with evaluations and other work between them."""


def compare(windows: Mapping[int, PhaseTotals]) -> RankTimes | None:
    """Compares the sums of each rank's window. At least two ranks must have trained."""
    trained = {rank: one for rank, one in sorted(windows.items()) if one.trained and one.phase_ns.total()}
    if len(trained) < 2:
        return None
    waits = {rank: one.phase_ns["nccl_collective"] / 1e9 / one.trained for rank, one in trained.items()}
    step = sum(one.phase_ns.total() / 1e9 / one.trained for one in trained.values()) / len(trained)
    longest = max(waits.values())
    return RankTimes({rank: longest - wait for rank, wait in waits.items()}, min(waits.values()), step)
