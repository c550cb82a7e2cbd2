"""The steps of a training thread."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from otel_zernel_libraries.training.ledger import TimedSnapshot
from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.scopes.time_ranges import TimeRange

StepKind = Literal["training", "accumulation", "evaluation", "inference", "between", "unfinished", "skipped"]
"""`training`: an optimizer ran. `accumulation`: only a backward pass ran. `evaluation`: neither ran. `inference`:
passes without gradients that no loader feeds, for example a rollout or the generation of text. `between`: the time from
the end of a loop to the next batch. `unfinished`: the step was cut off, because the process ended, the collector
attached within it, or it had too many intervals. `skipped`: several steps in a row that have no intervals."""
Boundary = Literal["loader", "optimizer", "backward", ""]
"""What divides the steps of a thread: returns of its DataLoader, its optimizer, or its backward passes. Empty if it
does not train."""


@dataclass(slots=True)
class Step:
    """The time from one batch, or one update, to the next on a training thread: [start, end) in ns."""

    start: int
    end: int
    kind: StepKind = "unfinished"
    intervals: list[ThreadInterval] = field(default_factory=list)
    opened_by: ThreadInterval | None = None
    """The load of the batch that this step works on."""
    loads: int = 0
    """Number of consecutive loads that end the step. It is above 1 at the end of a loader, or with several loaders."""
    ends_epoch: bool = False
    losses: list[TimeRange] = field(default_factory=list)
    """When events were lost. Time without an interval is unknown there."""
    trains: bool = False
    """Whether a backward pass or an optimizer ran."""
    works_until: int | None = None
    """For the last step of an evaluation loop that was left early: when (ns) it was left, at the latest. Else None."""
    boundary: Boundary = "loader"
    thread: int = 0
    """The id of the thread."""
    has_runs: bool = False
    """Whether it has runs of operators."""
    hides_update: bool = False
    """Whether the weights change after its last backward pass, but nothing shows it."""
    compiles: bool = False
    """Whether it is a first step that compiles."""
    follows_inference: bool = False
    """Whether the step before it on its thread is of the kind `inference`."""
    environments: Sequence[int] = ()
    """The latest times (ns) between two passes without gradients of its thread: steps of an environment."""
    is_fed: bool = False
    """Whether another thread of the process loads data."""
    snapshots: list[TimedSnapshot] = field(default_factory=list)
    """The snapshots of its intervals, and the last one of the thread before it."""

    skipped: int = 0
    """Of the kind `skipped`: the number of steps."""

    @property
    def lossy(self) -> bool:
        """Whether events were lost during the step."""
        return bool(self.losses)

    def is_lost(self, start: int, end: int) -> bool:
        """Whether events were lost between these times (ns)."""
        return any(begin < end and start < until for begin, until in self.losses)
