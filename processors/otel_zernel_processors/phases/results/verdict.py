"""The verdict on a process: what limits its training, with the evidence."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from otel_zernel_libraries.training import ESSENTIAL_MARKS, FEWEST_STEPS, verdict_of_shares
from otel_zernel_processors.phases.config import VerdictConfig
from otel_zernel_processors.phases.results.totals import PhaseTotals
from otel_zernel_processors.phases.signals.debounce import Debounce

VERDICTS = (
    "none",
    "input_bound",
    "communication_bound",
    "optimizer_bound",
    "host_bound",
    "unstable",
    "compute_bound",
    "marks_missing",
)
"""`none`: too few steps, or no other verdict applies. `marks_missing` replaces `none` for a process whose PyTorch does
not have an essential mark."""

MARKS = frozenset({"scopes", "backward", "collective_wait", "ddp_wait", "operators", "grad_mode"})
"""The values of `zernel.mark` in docs/spans.md."""


class Verdict(NamedTuple):
    """A verdict and the values it is based on: shares of 0 to 1, and the coefficient of variation of steps."""

    name: str
    evidence: Mapping[str, float]


def verdict_of(window: PhaseTotals, config: VerdictConfig, current: str) -> Verdict:
    """The verdict on the sums of a window. `current` is the verdict so far: its threshold is lower by `margin`."""
    values = {
        "input_bound": window.fraction("data_loading"),
        "communication_bound": window.fraction("nccl_collective"),
        "optimizer_bound": window.fraction("optimizer_step"),
        "host_bound": window.host_fraction,
        "unstable": window.jitter,
        "compute_bound": window.fraction("gpu_compute"),
    }
    if window.trained < FEWEST_STEPS:
        return Verdict("none", values)
    return Verdict(verdict_of_shares(values, {name: _limit(config, name, current) for name in values}), values)


def _limit(config: VerdictConfig, name: str, current: str) -> float:
    limit = float(getattr(config, name))
    return limit * (1 - config.margin) if name == current else limit


class VerdictTracker:
    """Evaluates each interval. A new verdict replaces the old one after `stability` intervals in a row."""

    def __init__(self, config: VerdictConfig) -> None:
        self._config = config
        self._name = Debounce(config.stability, "none")
        self.verdict = Verdict("none", {})

    def update(self, window: PhaseTotals, missing_marks: Collection[str] = ()) -> bool:
        """Evaluates the sums of the window; returns whether the verdict changed."""
        verdict = verdict_of(window, self._config, self._name.state)
        if verdict.name == "none" and not ESSENTIAL_MARKS.isdisjoint(missing_marks):
            verdict = Verdict("marks_missing", verdict.evidence)
        changed = self._name.update(verdict.name)
        self.verdict = Verdict(self._name.state, verdict.evidence)
        return changed
