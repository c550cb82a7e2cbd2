"""Steps of a training process, from the spans `step` that `phases` emits."""

from dataclasses import dataclass
from typing import NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.training.names import PHASES
from otel_zernel.training.points import scalars_of

_NS = 1e9  # nanoseconds to the second


class BarSegment(NamedTuple):
    """A part of a step with one detail of a phase."""

    phase: str
    detail: str
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class StepBar:
    """One step, or several neighbours that were merged."""

    start_ns: int
    """Unix time."""
    end_ns: int
    kind: str
    """`zernel.step.kind` of its longest step."""
    number: int
    """The number of its first step in its process."""
    phase_ns: tuple[int, ...]
    """The time in each of `PHASES`."""
    segments: tuple[BarSegment, ...] = ()
    """In order of time. Merged steps have none."""
    steps: int = 1
    longest_ns: int = 0
    """The duration of its longest step."""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


def bar_of(step: Span, segments: tuple[BarSegment, ...] = ()) -> StepBar:
    """The bar of a span `step`. A missing or wrong attribute counts as 0."""
    named = scalars_of(step.attributes)
    phase_s = (named.get(f"zernel.phase.{phase}", 0.0) for phase in PHASES)
    number = named.get("zernel.step.number", 0)
    return StepBar(
        start_ns=step.start_time_unix_nano,
        end_ns=step.end_time_unix_nano,
        kind=str(named.get("zernel.step.kind", "")),
        number=number if isinstance(number, int) else 0,
        phase_ns=tuple(round(spent * _NS) if isinstance(spent, float | int) else 0 for spent in phase_s),
        segments=segments,
        longest_ns=step.end_time_unix_nano - step.start_time_unix_nano,
    )
