"""The causes of a job, ranked by what removing each would save, and how they travel: as the body of a log record.

`phases` writes one record for each job and report, with the event `zernel.job.causes` and the resource of the job, or
of the process that trains alone. All times are seconds a step.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from pydantic import Field, FiniteFloat

from otel_zernel_libraries.training.ledger import Activity, Position
from otel_zernel_libraries.training.record_bodies import RecordBody

WORTH: Final = 0.03
"""What is named is at least this share of a step."""
Text = Annotated[str, Field(max_length=1_024)]
Texts = Annotated[tuple[Text, ...], Field(max_length=16)]


class CauseName(StrEnum):
    """Why a step takes longer than it must (`zernel.cause`). docs/causes.md has the same table."""

    SEGMENT = "segment"
    """An activity in a position of a rank."""
    STRAGGLER = "straggler"
    IMBALANCE = "imbalance"
    """Ranks are late in turns: their batches differ."""
    SLOW_LINK = "slow_link"
    SMALL_COLLECTIVES = "small_collectives"
    EXTRA_COLLECTIVES = "extra_collectives"
    """More reductions of gradients than optimizer steps."""
    SLOW_STEPS = "slow_steps"
    GROWTH = "growth"
    """Steps take longer and longer."""
    MEMORY_GROWTH = "memory_growth"
    """It takes no time: its gain is 0. Its evidence says when it ends the job."""
    FIRST_OF_EPOCH = "first_of_epoch"
    ITERATOR_PER_STEP = "iterator_per_step"
    WORKERS_TOO_FEW = "workers_too_few"
    WORKERS_SLOW = "workers_slow"
    WORKERS_RESTART = "workers_restart"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    PERIODIC = "periodic"
    """Work every so many steps."""
    COMPILE = "compile"
    CPU_TAKEN = "cpu_taken"
    CPU_QUOTA = "cpu_quota"
    GIL = "gil"
    THREADS = "threads"
    """More threads run than there are CPUs."""
    DEVICE_CLOCKS = "device_clocks"
    DEVICE_SHARED = "device_shared"
    SMALL_LAUNCHES = "small_launches"
    COPIES = "copies"


class Unknown(StrEnum):
    """Why an answer names no cause, although there may be one."""

    FEW_STEPS = "few_steps"
    GPU_WORK = "gpu_work"
    """Threads wait for a GPU whose work is not known."""
    REPLAY = "replay"
    """The replay of all that was measured takes another time than the steps did."""
    UNCERTAIN = "uncertain"
    """A large cause is not certain."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A fact that shows a cause."""

    text: Text
    """A sentence with its numbers."""
    value: FiniteFloat
    unit: Text


@dataclass(frozen=True, slots=True)
class CodeTime:
    """A line of the program, and its part of the time of a cause."""

    line: Text
    """The user's deepest line: `train.py:42 tokenize`."""
    call: Text
    """The call of a library below it: `transformers/tokenization_utils.py:2877 __call__`. Empty without one."""
    seconds: FiniteFloat
    """A step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause, and what the job would save without it."""

    cause: CauseName
    phase: Text = ""
    """`zernel.phase` of its position and activity; empty if it has none."""
    position: Position | None = None
    activity: Activity | None = None
    rank: int | None = None
    """None: all ranks."""
    gain: FiniteFloat
    gain_low: FiniteFloat
    gain_high: FiniteFloat
    """The bounds of the gain: nine times in ten it is between them."""
    share: FiniteFloat
    """The gain by the mean step."""
    evidence: Annotated[tuple[Evidence, ...], Field(max_length=16)] = ()
    advice: Texts = ()
    """Sentences, in the order in which to try them."""
    code: Texts = ()
    """The user's lines that take its time: `train.py:42 tokenize`, the longest first. Empty if they are not known."""
    lines: Annotated[tuple[CodeTime, ...], Field(max_length=16)] = ()
    """The same lines with their times."""

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for the same cause in two answers. Only segments differ by their place."""
        return self.cause, self.rank, *((self.position, self.activity) if self.cause is CauseName.SEGMENT else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """Time of a thread whose removal would save nothing, because something else takes as long meanwhile."""

    position: Position
    activity: Activity
    rank: int | None = None
    time: FiniteFloat


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """What the GPUs did, as a mean of the ranks."""

    busy: FiniteFloat
    starved: dict[Position, FiniteFloat] = field(default_factory=dict)
    """By the position of the thread meanwhile."""
    undetermined: FiniteFloat
    exact: bool = False
    """Whether the records of the GPUs say so. Else it is found from the calls of the threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnswer:
    """What a job could save."""

    step: FiniteFloat
    """The mean time from one training step to the next, with the work between them."""
    steps: int
    """The steps that it rests on."""
    ranks_seen: int = 1
    ranks_expected: int = 1
    causes: Annotated[tuple[Cause, ...], Field(max_length=16)] = ()
    """The named ones, the largest gain first. One that was first before stays first within a point of the step."""
    hidden: Annotated[tuple[Hidden, ...], Field(max_length=16)] = ()
    """The longest first."""
    best: FiniteFloat
    """What the step would at best become: the replay without all time that one could save."""
    looked_at: Annotated[tuple[CauseName, ...], Field(max_length=len(CauseName))] = ()
    """The causes that the facts of this job could show."""
    waits: FiniteFloat = 0.0
    """If ranks are missing: the time in which all ranks that are seen wait for others."""
    device: DeviceTime | None = None
    """None without a GPU."""
    unknown: Unknown | None = None
    """Why no cause can be named. None if the causes are known."""

    @property
    def says_nothing(self) -> bool:
        """Whether it names no cause, and is about some of the ranks: the answer on their job says more."""
        return self.unknown is not None and self.ranks_seen < self.ranks_expected

    @property
    def waits_first(self) -> bool:
        """Whether these waits are worth naming, and longer than what the first cause would save."""
        return self.waits >= max(WORTH * self.step, self.causes[0].gain if self.causes else 0.0)

    @property
    def first(self) -> Cause | None:
        """The cause to look at first. None if the waits for ranks that are not seen come first, too."""
        return self.causes[0] if self.causes and not self.waits_first else None

    def to_body(self) -> AnyValue:
        """The body of the record."""
        return _ANSWER.write(self)

    @classmethod
    def from_body(cls, body: AnyValue) -> "JobAnswer":
        """Reads the body of a record. Raises `MalformedSpan`."""
        return _ANSWER.read(body)


_ANSWER: Final = RecordBody(JobAnswer)
