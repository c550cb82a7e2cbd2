"""What a process is bound by: a verdict one can act on, and its evidence."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from otel_zernel_processors.phases.config import VerdictConfig
from otel_zernel_processors.phases.results.totals import Tally
from otel_zernel_processors.phases.signals.debounce import Vote

VERDICTS = (
    "none",
    "input_bound",
    "communication_bound",
    "optimizer_bound",
    "unstable",
    "compute_bound",
    "marks_missing",
)
"""`none`: too few steps, or none of the others. `marks_missing`: likewise, and PyTorch's marks are not all there."""

MARKS = frozenset({"scopes", "backward", "collective_wait", "ddp_wait"})
"""`zernel.mark` of docs/spans.md."""
_ESSENTIAL = frozenset({"scopes", "backward"})
"""Marks without which no training step can be judged. The others are of distributed jobs alone."""

ADVICE = {
    "none": "nothing stands out",
    "input_bound": "the GPU waits for data: more DataLoader workers, faster storage, or less preprocessing",
    "communication_bound": "ranks wait for collectives: larger batches, gradient accumulation, or a faster network",
    "optimizer_bound": "the optimizer takes long: a fused or foreach implementation, or fewer optimizer steps",
    "unstable": "steps differ in length: see the slowest ones' traces",
    "compute_bound": "the GPU computes most of the time: only faster kernels or lower precision help",
    "marks_missing": "time is unknown, since the PyTorch of this process lacks functions that phases are made of; "
    "`otel-zernel doctor` names them",
}
_FEWEST = 3
"""Fewer training steps in the window say nothing."""


class Finding(NamedTuple):
    """A verdict, and the values it rests on, 0 to 1 but for the jitter."""

    verdict: str
    evidence: Mapping[str, float]


def judge(tally: Tally, config: VerdictConfig, standing: str) -> Finding:
    """The verdict on the window's sums, `standing` being the one so far.

    Of input, communication and optimizer the one that is furthest above its threshold counts; only if none is,
    instability does, and then computation.
    """
    values = {
        "input_bound": tally.fraction("data_loading"),
        "communication_bound": tally.fraction("nccl_collective"),
        "optimizer_bound": tally.fraction("optimizer_step"),
        "unstable": tally.jitter,
        "compute_bound": tally.fraction("gpu_compute"),
    }
    if tally.trained < _FEWEST:
        return Finding("none", values)
    limits = {name: _limit(config, name, standing) for name in values}
    excess = {name: value / limits[name] if limits[name] else 1.0 + value for name, value in values.items()}
    waits = ("input_bound", "communication_bound", "optimizer_bound")
    worst = max(waits, key=lambda name: excess[name])
    order = (worst, "unstable", "compute_bound")
    return Finding(next((name for name in order if excess[name] >= 1.0), "none"), values)


def _limit(config: VerdictConfig, name: str, standing: str) -> float:
    limit = float(getattr(config, name))
    return limit * (1 - config.margin) if name == standing else limit


class Judge:
    """Judges each interval, and keeps to a verdict until another has held for some."""

    def __init__(self, config: VerdictConfig) -> None:
        self._config = config
        self._vote = Vote(config.stability, "none")
        self.finding = Finding("none", {})

    def hear(self, tally: Tally, missing: Collection[str] = ()) -> bool:
        """Judges the window's sums, of a process that lacks these marks; whether the verdict is a new one."""
        finding = judge(tally, self._config, self._vote.state)
        if finding.verdict == "none" and not _ESSENTIAL.isdisjoint(missing):
            finding = Finding("marks_missing", finding.evidence)
        changed = self._vote.cast(finding.verdict)
        self.finding = Finding(self._vote.state, finding.evidence)
        return changed
