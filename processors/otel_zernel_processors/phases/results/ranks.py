"""The ranks of one job beside each other: who makes the others wait, or is it the link.

Nothing here compares clocks. Ranks of a job take their steps together, so over a window each takes about as many. A
rank that arrives late at a collective waits least, while the others wait for it: its lateness is how much less than the
most patient rank it waits. What even the least waiting rank waits is the transfer itself: if that is long, the link is
slow.
"""

from collections.abc import Mapping
from typing import NamedTuple

from otel_zernel_processors.phases.config import VerdictConfig
from otel_zernel_processors.phases.results.totals import Tally
from otel_zernel_processors.phases.signals.debounce import Vote

VERDICTS = ("none", "balanced", "straggler", "slow_link")


class JobFinding(NamedTuple):
    """What the ranks' waits say. Seconds are those of a mean step."""

    verdict: str
    straggler: int | None
    """The rank that is latest, if that is the verdict."""
    lateness_s: Mapping[int, float]
    """By rank: how much less it waits than the most patient one."""
    transfer_s: float
    """What even the last rank to arrive waits."""
    step_s: float


def compare(tallies: Mapping[int, Tally], config: VerdictConfig, standing: str) -> JobFinding:
    """Compares the window's sums of each rank; at least two must have trained."""
    trained = {rank: tally for rank, tally in tallies.items() if tally.trained and tally.duration_ns}
    if len(trained) < 2:
        return JobFinding("none", None, {}, 0.0, 0.0)
    waits = {rank: tally.phase_ns["nccl_collective"] / tally.trained / 1e9 for rank, tally in trained.items()}
    step = sum(tally.duration_ns / tally.trained for tally in trained.values()) / len(trained) / 1e9
    lateness = {rank: max(waits.values()) - wait for rank, wait in sorted(waits.items())}
    latest = max(lateness, key=lambda rank: lateness[rank])
    transfer = min(waits.values())
    late = lateness[latest] / step >= _limit(config.straggler, config, standing == "straggler")
    slow = transfer / step >= _limit(config.slow_link, config, standing == "slow_link")
    if late and (not slow or lateness[latest] >= transfer):
        return JobFinding("straggler", latest, lateness, transfer, step)
    return JobFinding("slow_link" if slow else "balanced", None, lateness, transfer, step)


def _limit(limit: float, config: VerdictConfig, standing: bool) -> float:
    return limit * (1 - config.margin) if standing else limit


class JobJudge:
    """Compares the ranks each interval, and keeps to a verdict until another has held for some."""

    def __init__(self, config: VerdictConfig) -> None:
        self._config = config
        self._vote = Vote(config.stability, "none")
        self.finding = JobFinding("none", None, {}, 0.0, 0.0)

    def hear(self, tallies: Mapping[int, Tally]) -> bool:
        """Compares; whether the verdict is a new one."""
        finding = compare(tallies, self._config, self._vote.state)
        changed = self._vote.cast(finding.verdict)
        straggler = finding.straggler if self._vote.state == "straggler" else None
        self.finding = finding._replace(verdict=self._vote.state, straggler=straggler)
        return changed
