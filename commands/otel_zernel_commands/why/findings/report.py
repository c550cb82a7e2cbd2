"""The result of a watch. All durations are in s, all shares from 0 to 1."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_zernel_commands.why.watch import StepBlock
from otel_zernel_libraries.training.causes import JobAnswer
from otel_zernel_libraries.training.code_times import CodeTimes
from otel_zernel_libraries.training.hangs import JobHang
from otel_zernel_libraries.training.steps import StepBar


@dataclass(frozen=True, slots=True)
class TimeShare:
    """The time that a job spends in a phase, or in one detail of it: the mean of its ranks."""

    phase: str
    detail: str
    """Empty for the whole phase."""
    per_step: float
    """For each training step; 0 if there was none."""
    share: float


@dataclass(frozen=True, slots=True)
class ActivityTime:
    """The time that training threads spend with an activity in a position: the mean of their ranks."""

    activity: str
    per_step: float
    """For each training step; 0 if there was none."""
    share: float
    """Of all time of the threads."""


@dataclass(frozen=True, slots=True)
class PositionTime:
    """The time that training threads spend in a position: the mean of their ranks."""

    position: str
    phase: str
    """That of the thread's own time in it. The time of the activity `collective` has another one."""
    per_step: float
    share: float
    activities: tuple[ActivityTime, ...]
    """The longest first."""


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """What GPUs did in a training step: the mean of their ranks. Their sum is the step."""

    busy: float
    starved: Mapping[str, float]
    """By the position of the training thread meanwhile, in the order of a step."""
    undetermined: float
    exact: bool = False
    """Whether the GPUs' own records say so. Else it is found from the calls of the threads."""


@dataclass(frozen=True, slots=True)
class RankRow:
    """One process of a job."""

    rank: int | None
    """None for a process that trains alone."""
    pid: int
    steps: int
    """Training steps."""
    p50: float
    p99: float
    shares: Mapping[str, float]
    """By phase."""
    lateness: float | None
    """How much later than the first rank it arrives at collectives, for each step; None if it was not compared."""
    blocks: tuple[StepBlock, ...] = ()
    """Its steps in blocks of time."""
    bars: tuple[StepBar, ...] = ()
    code: CodeTimes = field(default_factory=CodeTimes)
    """Its stacks."""


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU."""

    host: str
    ranks: tuple[int, ...]
    """The ranks of the job that use it."""
    index: int
    name: str
    utilization: float | None
    memory: float | None
    power: float | None
    """W, the mean."""
    temperature: float | None
    """Degrees Celsius, the highest."""
    slowed: Mapping[str, float] | None
    """By reason: the share of the readings in which it lowered the clocks. None if the driver does not say."""
    xids: Mapping[str, int] = field(default_factory=dict)
    """The number of errors that the driver has reported, by the code of NVIDIA's list (XID)."""
    xid_times: Mapping[str, float] = field(default_factory=dict)
    """The time of the last one by code, s since 1970, if it is known."""

    @property
    def title(self) -> str:
        """`GPU 1 of rank 5`"""
        ranks = ", ".join(map(str, self.ranks))
        return f"GPU {self.index}" + (f" of rank{'s' if len(self.ranks) > 1 else ''} {ranks}" if ranks else "")


@dataclass(frozen=True, slots=True)
class StepSummary:
    """The durations of a job's training steps, of all ranks together."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    longest: float
    jitter: float
    """The standard deviation as a share of the mean."""


@dataclass(frozen=True, slots=True)
class JobStart:
    """The start of a job that began during the watch."""

    first_step_after: float
    """From the start of the process to the begin of its first training step."""
    first_step: float
    """The duration of that step."""
    warm_up_steps: int
    """The first steps, as long as each takes longer than a usual one by half."""
    warm_up: float
    """The time that these steps took beyond that of as many usual ones."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a job is slow."""

    verdict: str
    """`zernel.verdict` or `zernel.job.verdict`, or `too_few_steps`, `no_scopes`."""
    sentence: str
    evidence: tuple[tuple[str, str], ...] = ()
    """Names and values."""
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """One thread of a program without steps."""

    pid: int
    tid: int
    name: str
    cpu: float
    """The share of its time on a CPU."""
    waits: Mapping[str, float]
    """By `zernel.activity`: the shares of the rest, the largest first."""


@dataclass(frozen=True, slots=True)
class JobFindings:
    """One job, or one process that trains alone, or a program without steps."""

    title: str
    host: str
    world_size: int
    """Ranks of the job, also on other hosts."""
    ranks: tuple[RankRow, ...]
    seconds: float
    """The time from the first to the last step that was seen."""
    steps: StepSummary
    shares: tuple[TimeShare, ...]
    """The phases in the order of a step, each before its details, which are sorted by time."""
    diagnosis: Diagnosis
    times: tuple[PositionTime, ...] = ()
    """Empty for a program without PyTorch's scopes, which has phases only."""
    device: DeviceTime | None = None
    """None if it uses no GPU."""
    answer: JobAnswer | None = None
    """Its causes. None if its steps are too few, or not known."""
    hang: JobHang | None = None
    """None if it neither hangs nor is stopped."""
    gpus: tuple[GpuRow, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be seen, and why."""
    cost: float | None = None
    """The share of its time that the watch took, of the rank that lost most; None if that is not known."""
    start: JobStart | None = None
    """None if it began before the watch."""
    threads: tuple[ThreadRow, ...] = ()
    """Those of a program without steps, the busiest first."""


@dataclass(frozen=True, slots=True)
class WhyReport:
    """Everything that the command prints."""

    started: str
    """ISO 8601, UTC."""
    seconds: float
    is_interrupted: bool
    processes: int
    """Processes of the machine that were looked at."""
    jobs: tuple[JobFindings, ...]
    gpus: tuple[GpuRow, ...] = ()
    """GPUs that no job uses."""
    notes: tuple[str, ...] = ()
    """What could not be seen on this machine, and why."""
