"""Compares the ranks of one job: finds the rank that delays the others, or a slow link.

No clocks are compared. The ranks of a job step together, so in one window all of them take about the same number of
steps. A rank that arrives late at a collective waits least, while the others wait for it. Its lateness is the longest
wait of any rank minus its own. The shortest wait of any rank is the transfer itself: if it is long, the link is slow.
"""

from collections.abc import Mapping
from typing import NamedTuple

from otel_zernel_processors.phases.config import VerdictConfig
from otel_zernel_processors.phases.results.totals import PhaseTotals
from otel_zernel_processors.phases.signals.debounce import Debounce

VERDICTS = ("none", "balanced", "straggler", "slow_link")


class JobVerdict(NamedTuple):
    """The verdict on a job. Seconds are per training step: all time of the ranks, and their waits in all of it, divided
    by the number of their training steps."""

    name: str
    straggler: int | None
    """The latest rank, if the verdict is `straggler`."""
    lateness_s: Mapping[int, float]
    """By rank: the longest wait of any rank minus the rank's own wait."""
    transfer_s: float
    """The shortest wait of any rank."""
    step_s: float
    """The time from one training step to the next, with evaluations and other work between them."""


_NONE = JobVerdict("none", None, {}, 0.0, 0.0)


def compare(windows: Mapping[int, PhaseTotals], config: VerdictConfig, current: str) -> JobVerdict:
    """The verdict on the sums of each rank's window. At least two ranks must have trained. `current` is the verdict so
    far: its threshold is lower by `margin`."""
    trained = {rank: window for rank, window in windows.items() if window.trained and window.phase_ns.total()}
    if len(trained) < 2:
        return _NONE
    waits = {rank: window.phase_ns["nccl_collective"] / window.trained / 1e9 for rank, window in trained.items()}
    step = sum(window.phase_ns.total() / window.trained for window in trained.values()) / len(trained) / 1e9
    lateness = {rank: max(waits.values()) - wait for rank, wait in sorted(waits.items())}
    latest = max(lateness, key=lambda rank: lateness[rank])
    transfer = min(waits.values())
    late = lateness[latest] / step >= _limit(config.straggler, config, current == "straggler")
    slow = transfer / step >= _limit(config.slow_link, config, current == "slow_link")
    if late and (not slow or lateness[latest] >= transfer):
        return JobVerdict("straggler", latest, lateness, transfer, step)
    return JobVerdict("slow_link" if slow else "balanced", None, lateness, transfer, step)


def _limit(limit: float, config: VerdictConfig, is_current: bool) -> float:
    return limit * (1 - config.margin) if is_current else limit


class JobVerdictTracker:
    """Compares the ranks in each interval. A new verdict replaces the old one after `stability` intervals in a row."""

    def __init__(self, config: VerdictConfig) -> None:
        self._config = config
        self._name = Debounce(config.stability, "none")
        self.verdict = _NONE

    def update(self, windows: Mapping[int, PhaseTotals]) -> bool:
        """Compares the sums of each rank's window; returns whether the verdict changed."""
        verdict = compare(windows, self._config, self._name.state)
        changed = self._name.update(verdict.name)
        straggler = verdict.straggler if self._name.state == "straggler" else None
        self.verdict = verdict._replace(name=self._name.state, straggler=straggler)
        return changed
