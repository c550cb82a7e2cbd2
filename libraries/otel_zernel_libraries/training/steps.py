"""Steps of a training process, from the spans `step` and `steps` that `phases` emits."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.points import scalars_of

MERGED_STEPS: Final = "steps"
"""The name of the span of several steps that were merged. That of a single step is `step`."""
_NS = 1e9  # nanoseconds to the second
_DURATIONS: Final = "zernel.step.durations"
_MOST_DURATIONS: Final = 16
"""Different durations of merged steps. With more, neighbours become one."""
Durations = tuple[tuple[int, int], ...]
"""Pairs of a duration (ns) and the number of steps that lasted so long, the shortest first."""


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
    durations: Durations = ()
    """Of merged steps. Empty for a single one."""
    is_lossy: bool = False
    """Whether events were lost in a single step."""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def each_ns(self) -> Durations:
        """The durations of its steps."""
        return self.durations or ((self.duration_ns, 1),)

    @property
    def longest_ns(self) -> int:
        """The duration of its longest step."""
        return self.each_ns[-1][0]


def joined_durations(several: Iterable[Durations]) -> Durations:
    """The durations of several bars together. Durations that differ by less than 1 % may become one."""
    ordered = sorted(pair for durations in several for pair in durations)
    width = 0.01
    while len(ordered) > _MOST_DURATIONS:
        longest: dict[int, int] = {}
        counts = Counter[int]()
        for duration, count in ordered:
            at = round(math.log(max(duration, 1)) / width)
            longest[at] = max(longest.get(at, 0), duration)
            counts[at] += count
        ordered = [(longest[at], counts[at]) for at in sorted(counts)]
        width *= 2
    return tuple(ordered)


def durations_attribute(durations_ns: Iterable[int]) -> KeyValue:
    """The attribute of a span `steps` with the durations of its steps, in s."""
    values = [AnyValue(double_value=duration / _NS) for duration in durations_ns]
    return KeyValue(key=_DURATIONS, value=AnyValue(array_value=ArrayValue(values=values)))


def bar_of(step: Span, segments: tuple[BarSegment, ...] = ()) -> StepBar:
    """The bar of a span `step` or `steps`. A missing or wrong attribute counts as 0."""
    named = scalars_of(step.attributes)
    phase_s = (named.get(f"zernel.phase.{phase}", 0.0) for phase in PHASES)
    number = named.get("zernel.step.number", 0)
    durations = _durations_of(step) if step.name == MERGED_STEPS else []
    return StepBar(
        start_ns=step.start_time_unix_nano,
        end_ns=step.end_time_unix_nano,
        kind=str(named.get("zernel.step.kind", "")),
        number=number if isinstance(number, int) else 0,
        phase_ns=tuple(round(spent * _NS) if isinstance(spent, float | int) else 0 for spent in phase_s),
        segments=segments,
        steps=max(len(durations), 1),
        durations=joined_durations([tuple((duration, 1) for duration in durations)]),
        is_lossy=bool(named.get("zernel.step.lossy")),
    )


def _durations_of(steps: Span) -> list[int]:
    """In ns."""
    arrays = (pair.value.array_value.values for pair in steps.attributes if pair.key == _DURATIONS)
    seconds = (value.double_value for values in arrays for value in values)
    return [round(one * _NS) for one in seconds if math.isfinite(one) and one >= 0]
