"""Everything that a diagnosis is based on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_zernel_commands.why.findings.groups import JobGroup
from otel_zernel_commands.why.findings.report import GpuRow, StepSummary, TimeShare


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about one job."""

    group: JobGroup
    shares: tuple[TimeShare, ...]
    steps: StepSummary
    gpus: tuple[GpuRow, ...]
    cpus: int
    """CPUs of this machine."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """By verdict: the threshold of `phases`, a share of a step."""

    @property
    def step(self) -> float:
        """The mean time (s) between two training steps."""
        return sum(row.per_step for row in self.shares if not row.detail)

    def phase(self, name: str) -> TimeShare:
        """The whole phase."""
        return next(
            (row for row in self.shares if (row.phase, row.detail) == (name, "")), TimeShare(name, "", 0.0, 0.0)
        )

    def longest_detail(self, phase: str) -> TimeShare | None:
        """The detail that takes most of the phase."""
        details = (row for row in self.shares if row.phase == phase and row.detail)
        return max(details, key=lambda row: row.share, default=None)
