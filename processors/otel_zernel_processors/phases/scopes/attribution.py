"""Attributes each nanosecond of a step to exactly one phase.

Where intervals overlap, the first of these that applies wins:

1. `collective`: the thread waits for other ranks (in a wait of c10d, in a CUDA sync while a collective is in flight, or
   from enqueueing a collective to its end, if that is shorter than `bridge` and the thread does nothing else)
2. the scope that began last: `data_loading`, `backward`, `optimizer` or `zero_grad`
3. `enqueue`: the thread enqueues a collective; `sync`, `ddp`: it waits for the GPU, or runs DDP's forward
4. no interval: see `scopes.gaps` for steps without a loader. With a loader: `forward` before the first backward pass;
   `compute` from there to the last work of the step (gradient clipping, loss scaling); `unknown` after that work
   (logging, checkpoints) and between loops. In an evaluation: `forward`, and `unknown` after a loop that was left
   early. `lost` if events were lost

Passes, `forward` and `inference`, are scopes, too, but the calls of 3 show more than they do.

The user's own regions (`record_function`) may enclose anything, so they are ignored.

A gap shorter than `bridge` between two segments of one phase is the time Python needs between two calls. It belongs to
that phase.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from otel_zernel_processors.phases.intake.intervals import RUNS, ThreadInterval
from otel_zernel_processors.phases.scopes.activities import DETAIL_OF, PHASE_OF
from otel_zernel_processors.phases.scopes.cuts import (
    COLLECTIVE,
    ENQUEUE,
    IS_SCOPE,
    PRECEDENCE,
    SYNC,
    Cover,
    Cut,
    cuts_of,
)
from otel_zernel_processors.phases.scopes.gaps import Gap, ThreadMark, gaps_of, marks_of
from otel_zernel_processors.phases.scopes.steps import Step
from otel_zernel_processors.phases.scopes.time_ranges import TimeRange, intersection, length, union

_UNCOVERED = frozenset({"forward", "compute", "unknown"})
"""The activities of time without an interval. A short time between two scopes of one phase belongs to it."""
_NESTED = 64
"""Intervals before an enqueued collective among which one may enclose it."""
_CALLS = frozenset({"collective", "sync", "ddp"})
"""Kinds whose precedence also depends on other facts."""
_NO_WORK = RUNS - {"update"} | {"data_loading", "collective", "user"}


class Segment(NamedTuple):
    """A part of a step with one activity of its thread: [start, end) in ns."""

    start: int
    end: int
    activity: str

    @property
    def phase(self) -> str:
        """The phase of the activity."""
        return PHASE_OF[self.activity]

    @property
    def detail(self) -> str:
        """The detail of the phase."""
        return DETAIL_OF[self.activity]


_segment: Callable[[Cut], Segment] = partial(tuple.__new__, Segment)
"""Makes a segment in half the time that its class needs."""


class Attribution(NamedTuple):
    """The segments of a step, which follow each other from its start to its end without a gap."""

    segments: list[Segment]
    overlap_ns: int
    """How long collectives were in flight while the thread did something else."""

    def phase_ns(self) -> dict[str, int]:
        """The time in each phase that occurs in the step."""
        spent: dict[str, int] = {}
        for start, end, activity in self.segments:
            phase = PHASE_OF[activity]
            spent[phase] = spent.get(phase, 0) + end - start
        return spent


def attribute(step: Step, in_flight: Sequence[TimeRange], bridge_ns: int) -> Attribution:
    """The attribution of a step. `in_flight` are the times of the process's collectives."""
    flights = union([(max(start, step.start), min(end, step.end)) for start, end in in_flight]) if in_flight else []
    marks = marks_of(step, bridge_ns) if step.has_runs else None
    covered = _covered(step.intervals, marks)
    if flights:
        waits = union((start, end) for start, end, at in covered if at == SYNC)
        covered += [(start, end, COLLECTIVE) for start, end in intersection(waits, flights)]
        covered += _short_waits(covered, flights, bridge_ns)
    bounds = _work(step)
    if marks is None and step.boundary != "loader":
        marks = marks_of(step, bridge_ns)
    gaps = _gaps(step, marks, bounds, bridge_ns) if marks and not step.lossy else []
    covered.sort()
    segments = list(_joined(cuts_of(step, covered, bounds, gaps), bridge_ns))
    exposed = [(start, end) for start, end, activity in segments if activity == "collective"] if flights else []
    return Attribution(segments, length(flights) - length(intersection(flights, exposed)) if flights else 0)


def _covered(intervals: Iterable[ThreadInterval], marks: Iterable[ThreadMark] | None) -> list[Cover]:
    """The intervals that show an activity. `marks` replace scopes and passes."""
    covered = [
        (one.start, one.end, at)
        for one in intervals
        if (at := _precedence(one) if one.kind in _CALLS else PRECEDENCE.get(one.kind)) is not None
    ]
    if marks is None:
        return covered
    calls = [cover for cover in covered if not IS_SCOPE[cover[2]]]
    return calls + [(mark.start, mark.end, PRECEDENCE[mark.kind]) for mark in marks if mark.start < mark.end]


def _precedence(interval: ThreadInterval) -> int | None:
    """The precedence of an interval; None if it is ignored."""
    kind = interval.kind
    if kind == "collective":
        return None if interval.in_flight else ENQUEUE
    if kind in ("sync", "ddp") and interval.waits_for_collective:
        return COLLECTIVE
    return PRECEDENCE.get(kind)


def _short_waits(covered: Sequence[Cover], flights: Iterable[TimeRange], bridge_ns: int) -> list[Cover]:
    """The waits for collectives that are too short for a span. A wait for the GPU ends the collectives in flight, so it
    is the time since the last of them was enqueued, if the thread has done nothing else since."""
    ordered, waits = sorted(covered), list[Cover]()
    for _, done in flights:
        position = bisect_left(ordered, (done,))
        if position and ordered[position - 1][2] == ENQUEUE:
            enqueued = max(end for _, end, _ in ordered[max(position - _NESTED, 0) : position])
            if enqueued < done < enqueued + bridge_ns:
                waits.append((enqueued, done, COLLECTIVE))
    return waits


def _gaps(step: Step, marks: Sequence[ThreadMark], bounds: TimeRange, bridge_ns: int) -> list[Gap]:
    """The gaps whose activity only the marks around them show."""
    if step.boundary != "loader" or step.kind in ("between", "unfinished"):
        return gaps_of(step, marks, step.start, bridge_ns)
    return gaps_of(step, marks, bounds[1], bridge_ns) if step.kind != "evaluation" else []


def _work(step: Step) -> TimeRange:
    """From the start of the first backward pass to the end of the last work of the step."""
    if step.kind == "evaluation":
        return step.end, step.end if step.works_until is None else step.works_until
    backward, work_end = step.end, step.start
    for interval in step.intervals:
        if interval.kind not in _NO_WORK:
            work_end = max(work_end, interval.end)
            if interval.kind == "backward":
                backward = min(backward, interval.start)
    return backward, work_end


def _joined(cuts: Sequence[Cut], bridge_ns: int) -> Iterator[Segment]:
    """The cuts as segments: short gaps are bridged, neighbours with one activity are joined."""
    begin, last, current = 0, len(cuts) - 1, ""
    for position, (start, end, activity) in enumerate(cuts):
        if end - start < bridge_ns and activity in _UNCOVERED and 0 < position < last:
            before, after = cuts[position - 1][2], cuts[position + 1][2]
            if PHASE_OF[before] == PHASE_OF[after]:
                activity = before
        if activity != current:
            if current:
                yield _segment((begin, start, current))
            begin, current = start, activity
    if current:
        yield _segment((begin, cuts[-1][1], current))


def segments_after(segments: Sequence[Segment], time: int) -> Sequence[Segment]:
    """The part of the segments, which follow each other, after a time (ns)."""
    if not segments or segments[0].start >= time:
        return segments
    return [segment._replace(start=max(segment.start, time)) for segment in segments if segment.end > time]
