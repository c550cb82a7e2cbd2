"""Steps of a training process, from the spans `step` and `steps` that `phases` emits."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from otel_zernel_libraries.training.step_spans import MergedStepsSpan, StepSpan

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


def bar_of(step: StepSpan | MergedStepsSpan, segments: tuple[BarSegment, ...] = ()) -> StepBar:
    """The bar of a span `step` or `steps`."""
    durations = step.durations_ns if isinstance(step, MergedStepsSpan) else ()
    return StepBar(
        start_ns=step.start_ns,
        end_ns=step.end_ns,
        kind=step.kind,
        number=step.number,
        phase_ns=step.phase_ns,
        segments=segments,
        steps=max(len(durations), 1),
        durations=joined_durations([tuple((duration, 1) for duration in durations)]),
        is_lossy=isinstance(step, StepSpan) and step.is_lossy,
    )
