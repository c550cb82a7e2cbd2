"""Everything that a diagnosis is based on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_zernel_commands.why.findings.groups import JobGroup
from otel_zernel_commands.why.findings.report import GpuRow, StepSummary, TimeShare
from otel_zernel_commands.why.findings.shares import rank_times
from otel_zernel_libraries.training import PHASE_OF, JobVerdict, compare_ranks


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about one job."""

    group: JobGroup
    """Without the steps in which events were lost, if enough others are left."""
    shares: tuple[TimeShare, ...]
    steps: StepSummary
    gpus: tuple[GpuRow, ...]
    cpus: int
    """CPUs of this machine."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """By verdict: the threshold of `phases`, a share of a step."""

    @property
    def comparison(self) -> JobVerdict:
        """The comparison of the ranks, by the rule of `phases`, on the times of the table."""
        straggler, slow_link = (self.thresholds.get(name, math.inf) for name in ("straggler", "slow_link"))
        return compare_ranks(rank_times(self.group.processes), straggler, slow_link)

    @property
    def values(self) -> dict[str, float]:
        """By verdict: the share of the time, or the jitter of the steps, that decides it."""
        values = {verdict: self.phase(phase).share for verdict, phase in PHASE_OF.items()}
        return {**values, "host_bound": self.detail("unknown", "host").share, "unstable": self.steps.jitter}

    @property
    def step(self) -> float:
        """The mean time (s) between two training steps."""
        return sum(row.per_step for row in self.shares if not row.detail)

    def phase(self, name: str) -> TimeShare:
        """The whole phase."""
        return self.detail(name, "")

    def detail(self, phase: str, detail: str) -> TimeShare:
        """The row of the table; without time if the table has none."""
        rows = (row for row in self.shares if (row.phase, row.detail) == (phase, detail))
        return next(rows, TimeShare(phase, detail, 0.0, 0.0))

    def longest_detail(self, phase: str) -> TimeShare | None:
        """The detail that takes most of the phase."""
        details = (row for row in self.shares if row.phase == phase and row.detail)
        return max(details, key=lambda row: row.share, default=None)
