"""Compares the ranks of one job in each interval; `otel_zernel_libraries.training` has the rule."""

from collections.abc import Mapping

from otel_zernel_libraries.training import NOT_COMPARED, JobVerdict, RankTime, compare_ranks
from otel_zernel_processors.phases.config import VerdictConfig
from otel_zernel_processors.phases.results.totals import PhaseTotals
from otel_zernel_processors.phases.signals.debounce import Debounce

VERDICTS = ("none", "balanced", "straggler", "slow_link")


def compare(windows: Mapping[int, PhaseTotals], config: VerdictConfig, current: str) -> JobVerdict:
    """The verdict on the sums of each rank's window. `current` is the verdict so far: its threshold is lower by
    `margin`."""
    ranks = {
        rank: RankTime(window.trained, window.phase_ns.total() / 1e9, window.phase_ns["nccl_collective"] / 1e9)
        for rank, window in windows.items()
    }
    straggler, slow_link = (
        limit * (1 - config.margin) if name == current else limit
        for name, limit in (("straggler", config.straggler), ("slow_link", config.slow_link))
    )
    return compare_ranks(ranks, straggler, slow_link)


class JobVerdictTracker:
    """Compares the ranks in each interval. A new verdict replaces the old one after `stability` intervals in a row."""

    def __init__(self, config: VerdictConfig) -> None:
        self._config = config
        self._name = Debounce(config.stability, "none")
        self.verdict = NOT_COMPARED

    def update(self, windows: Mapping[int, PhaseTotals]) -> bool:
        """Compares the sums of each rank's window; returns whether the verdict changed."""
        verdict = compare(windows, self._config, self._name.state)
        changed = self._name.update(verdict.name)
        straggler = verdict.straggler if self._name.state == "straggler" else None
        self.verdict = verdict._replace(name=self._name.state, straggler=straggler)
        return changed
