"""The spans of steps that `phases` emits, and that `why`, `live` and `watch` read.

Each class is one kind of span in docs/development/spans.md, and writes and reads it. Times are ns since 1970. Ids are
the writer's. Only spans of the instrumentation scope `SCOPE_NAME` are of these kinds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Self

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.span_attributes import MalformedSpan, SpanAttributes, span_of

SCOPE_NAME: Final = "otel_zernel_processors.phases"
_PID: Final = "process.pid"
_NS: Final = 1e9  # nanoseconds to the second


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpan:
    """One step of a process. It may be a part of a trace of its job."""

    name: ClassVar = "step"

    start_ns: int
    end_ns: int
    number: int
    """In its process, from 1."""
    kind: str
    """`training`, `accumulation`, `evaluation` or `inference`."""
    boundary: str = ""
    """What ends it; empty if that is not known."""
    thread: int
    pid: int = 0
    """0 if unknown."""
    job_number: int = 0
    """The number of the job's step; 0 if the step has no part in one."""
    is_lossy: bool
    """Whether events were lost in it."""
    overlap_ns: int
    """Time of collectives in flight beside other work."""
    phase_ns: tuple[int, ...]
    """The time in each of `PHASES`."""
    cause: str = ""
    """What makes the steps of its job longer than they must be; empty if that is not known, or nothing does."""

    def to_span(self) -> Span:
        attributes: dict[str, AttributeValue | None] = {
            _PID: self.pid or None,
            semconv.JOB_STEP_NUMBER: self.job_number or None,
            semconv.STEP_NUMBER: self.number,
            semconv.STEP_KIND: self.kind,
            semconv.STEP_BOUNDARY: self.boundary or None,
            semconv.THREAD_ID: self.thread,
            semconv.STEP_LOSSY: self.is_lossy,
            semconv.PHASE_SOURCE: "scopes",
            semconv.COLLECTIVE_OVERLAP: self.overlap_ns / _NS,
            semconv.CAUSE: self.cause or None,
            **_phase_times(self.phase_ns),
        }
        return span_of(self.name, self.start_ns, self.end_ns, attributes)

    @classmethod
    def from_span(cls, span: Span) -> Self:
        """Raises `MalformedSpan`."""
        read = SpanAttributes.of(span)
        return cls(
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            number=read.integer(semconv.STEP_NUMBER),
            kind=read.text(semconv.STEP_KIND),
            boundary=read.text(semconv.STEP_BOUNDARY, ""),
            thread=read.integer(semconv.THREAD_ID),
            pid=read.integer(_PID, 0),
            job_number=read.integer(semconv.JOB_STEP_NUMBER, 0),
            is_lossy=read.flag(semconv.STEP_LOSSY),
            overlap_ns=read.duration_ns(semconv.COLLECTIVE_OVERLAP),
            phase_ns=_phase_ns_of(read),
            cause=read.text(semconv.CAUSE, ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedStepsSpan:
    """Several steps in a row of one thread."""

    name: ClassVar = "steps"

    start_ns: int
    end_ns: int
    number: int
    """The number of the first one in its process."""
    kind: str
    """`training` if any of them is."""
    thread: int
    pid: int = 0
    """0 if unknown."""
    phase_ns: tuple[int, ...]
    """The time of all in each of `PHASES`."""
    durations_ns: tuple[int, ...]
    """Of each step."""

    def to_span(self) -> Span:
        attributes: dict[str, AttributeValue | None] = {
            _PID: self.pid or None,
            semconv.STEP_NUMBER: self.number,
            semconv.STEP_KIND: self.kind,
            semconv.THREAD_ID: self.thread,
            semconv.PHASE_SOURCE: "scopes",
            **_phase_times(self.phase_ns),
        }
        span = span_of(self.name, self.start_ns, self.end_ns, attributes)
        durations = ArrayValue(values=[AnyValue(double_value=duration / _NS) for duration in self.durations_ns])
        span.attributes.append(KeyValue(key=semconv.STEP_DURATIONS, value=AnyValue(array_value=durations)))
        return span

    @classmethod
    def from_span(cls, span: Span) -> Self:
        """Raises `MalformedSpan`."""
        read = SpanAttributes.of(span)
        return cls(
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            number=read.integer(semconv.STEP_NUMBER),
            kind=read.text(semconv.STEP_KIND),
            thread=read.integer(semconv.THREAD_ID),
            pid=read.integer(_PID, 0),
            phase_ns=_phase_ns_of(read),
            durations_ns=read.durations_ns(semconv.STEP_DURATIONS),
        )


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """A part of a step in one position. It is a child of the span of the step."""

    name: str
    """The position, or `collective` or `gpu_wait` for such a wait."""
    start_ns: int
    end_ns: int
    phase: str
    detail: str
    position: str = ""
    """Empty in old recordings, as is the activity."""
    activity: str = ""
    """What the thread did in most of its time."""

    def to_span(self) -> Span:
        attributes: dict[str, AttributeValue | None] = {
            semconv.PHASE: self.phase,
            semconv.PHASE_DETAIL: self.detail,
            semconv.POSITION: self.position or None,
            semconv.ACTIVITY: self.activity or None,
        }
        return span_of(self.name, self.start_ns, self.end_ns, attributes)

    @classmethod
    def from_span(cls, span: Span) -> Self:
        """Raises `MalformedSpan`."""
        read = SpanAttributes.of(span)
        return cls(
            name=span.name,
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            phase=read.text(semconv.PHASE),
            detail=read.text(semconv.PHASE_DETAIL),
            position=read.text(semconv.POSITION, ""),
            activity=read.text(semconv.ACTIVITY, ""),
        )


class CriticalPath(NamedTuple):
    """The rank that made a step as long as it was."""

    rank: int
    phase_ns: Mapping[str, int]
    """The rank's time in each phase, from meeting to meeting. Its time in collectives is mostly the transfer itself."""

    @property
    def phase(self) -> str:
        """The phase with the longest time."""
        return max(sorted(self.phase_ns), key=lambda phase: self.phase_ns[phase])


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStepSpan:
    """One step of a job, from the first rank's start to the last rank's end. The steps of its ranks are below it."""

    name: ClassVar = "job step"

    start_ns: int
    end_ns: int
    number: int
    """In its job, from 1."""
    ranks: int
    """Ranks whose step is known."""
    world_size: int
    critical_path: CriticalPath | None = None
    """None if a rank is missing."""

    def to_span(self) -> Span:
        attributes: dict[str, AttributeValue | None] = {
            semconv.JOB_STEP_NUMBER: self.number,
            semconv.JOB_STEP_RANKS: self.ranks,
            semconv.WORLD_SIZE: self.world_size,
        }
        if path := self.critical_path:
            attributes |= {semconv.STEP_CRITICAL_PATH_RANK: path.rank, semconv.STEP_CRITICAL_PATH_PHASE: path.phase}
            attributes |= {semconv.critical_path_time(phase): spent / _NS for phase, spent in path.phase_ns.items()}
        return span_of(self.name, self.start_ns, self.end_ns, attributes)

    @classmethod
    def from_span(cls, span: Span) -> Self:
        """Raises `MalformedSpan`."""
        read = SpanAttributes.of(span)
        return cls(
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            number=read.integer(semconv.JOB_STEP_NUMBER),
            ranks=read.integer(semconv.JOB_STEP_RANKS),
            world_size=read.integer(semconv.WORLD_SIZE),
            critical_path=_critical_path_of(read) if semconv.STEP_CRITICAL_PATH_RANK in read else None,
        )


def step_of(span: Span) -> StepSpan | MergedStepsSpan | None:
    """Reads a span `step` or `steps`; None if it has another name. Raises `MalformedSpan`."""
    match span.name:
        case StepSpan.name:
            return StepSpan.from_span(span)
        case MergedStepsSpan.name:
            return MergedStepsSpan.from_span(span)
        case _:
            return None


def _phase_times(phase_ns: tuple[int, ...]) -> dict[str, float]:
    return {semconv.phase_time(phase): spent / _NS for phase, spent in zip(PHASES, phase_ns, strict=True)}


def _phase_ns_of(read: SpanAttributes) -> tuple[int, ...]:
    return tuple(read.duration_ns(semconv.phase_time(phase)) for phase in PHASES)


def _critical_path_of(read: SpanAttributes) -> CriticalPath:
    times = {phase: semconv.critical_path_time(phase) for phase in PHASES}
    spent = {phase: read.duration_ns(name) for phase, name in times.items() if name in read}
    longest = read.text(semconv.STEP_CRITICAL_PATH_PHASE)
    if longest not in spent:
        raise MalformedSpan(semconv.STEP_CRITICAL_PATH_PHASE)
    return CriticalPath(read.integer(semconv.STEP_CRITICAL_PATH_RANK), spent)
