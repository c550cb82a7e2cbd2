"""A training process and a job, as the points and spans of `phases` and `ebpf` describe them."""

from collections import defaultdict
from dataclasses import dataclass, field, replace

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_commands.why.seen.step_bars import StepBars
from otel_zernel_commands.why.seen.step_times import StepTimes
from otel_zernel_libraries.training import TRAINED, best_source


@dataclass(slots=True)
class SeenProcess:
    """The latest values of one process."""

    attributes: dict[str, AttributeValue]
    """Those of its resource."""
    command: tuple[str, ...] = ()
    """Its command line; empty if it could not be read."""
    ancestors: tuple[int, ...] = ()
    """The pids of its parent, grandparent and so on."""
    phases: dict[tuple[str, str], float] = field(default_factory=dict)
    """By phase and source (`scopes`, `threads`, `signals`): the time (s) since it was first seen."""
    details: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """By phase, detail and source: the time (s) since it was first seen."""
    steps: dict[tuple[str, str], int] = field(default_factory=dict)
    """By kind and boundary: the number of steps."""
    times: defaultdict[str, StepTimes] = field(default_factory=lambda: defaultdict(StepTimes))
    """By kind: the durations of steps."""
    bars: StepBars = field(default_factory=StepBars)
    lossy_steps: dict[str, int] = field(default_factory=dict)
    """By kind: the number of steps in which events were lost."""
    lossy_details: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """Like `details`: the part of it in these steps."""
    lossy_times: defaultdict[str, StepTimes] = field(default_factory=lambda: defaultdict(StepTimes))
    """Like `times`: the durations of these steps. `times` has those of the others."""
    missing_marks: set[str] = field(default_factory=set)
    """The values of `zernel.mark` in docs/spans.md."""
    has_sampled_operators: bool = False
    """Whether probes took more than `max_overhead`, so that some operators were not seen."""
    workers: int = 0
    """The most workers of its DataLoader at one time."""
    worker_cpu_s: float = 0.0
    """CPU time of its workers while it was watched."""
    worker_io_wait_s: float = 0.0
    """Time of its workers in uninterruptible sleep, which is I/O in most cases."""

    @property
    def pid(self) -> int:
        return int(self.attributes.get("process.pid", 0))  # type: ignore[arg-type]  # an int by docs/spans.md

    @property
    def host(self) -> str:
        return str(self.attributes.get("host.name", ""))

    @property
    def parent_pid(self) -> int:
        """0 if it is not known."""
        parent = self.attributes.get("process.parent_pid", 0)
        return parent if isinstance(parent, int) else 0

    @property
    def rank(self) -> int | None:
        """Its rank in a job of several ranks, else None."""
        rank, size = self.attributes.get("zernel.rank"), self.attributes.get("zernel.world_size")
        return rank if isinstance(rank, int) and isinstance(size, int) and size > 1 else None

    @property
    def trained(self) -> int:
        """The number of steps with a backward pass."""
        return sum(count for (kind, _), count in self.steps.items() if kind in TRAINED)

    @property
    def trained_lossy(self) -> int:
        """The number of these steps in which events were lost."""
        return sum(count for kind, count in self.lossy_steps.items() if kind in TRAINED)

    @property
    def trained_times(self) -> StepTimes:
        """The durations of all steps with a backward pass."""
        several = (times[kind] for times in (self.times, self.lossy_times) for kind in TRAINED if kind in times)
        return StepTimes.joined(several)

    def without_lossy_steps(self) -> "SeenProcess":
        """The same process, without the steps in which events were lost."""
        steps, left = dict(self.steps), dict(self.lossy_steps)
        for (kind, boundary), count in self.steps.items():
            steps[kind, boundary] = count - min(left.get(kind, 0), count)
            left[kind] = max(left.get(kind, 0) - count, 0)
        bars = StepBars()
        bars.bars = [bar for bar in self.bars.bars if not bar.is_lossy]
        details = {at: max(spent - self.lossy_details.get(at, 0.0), 0.0) for at, spent in self.details.items()}
        return replace(
            self,
            steps=steps,
            details=details,
            bars=bars,
            lossy_steps={},
            lossy_details={},
            lossy_times=defaultdict(StepTimes),
        )

    @property
    def source(self) -> str:
        """The best source of its phases: `scopes` with steps, else `threads` or `signals`; empty if none is known."""
        known = {source for (phase, source), spent in self.phases.items() if phase != "unknown" and spent}
        return best_source(known, has_steps=bool(self.steps))


@dataclass(slots=True)
class SeenJob:
    """A job of several ranks that `phases` reports."""

    attributes: dict[str, AttributeValue]
    """Those of its resource: the name of the job is one of them."""
    seen_at: int = 0
    """The time (ns) of the latest point."""
