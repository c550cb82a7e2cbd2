"""Attributes each nanosecond of a step to exactly one position, and to what the thread did there.

Where intervals overlap, the first of these that applies wins:

1. The thread waits for other ranks (in a wait of c10d, in a CUDA sync while a collective is in flight, or from
   enqueueing a collective to its end, if that is shorter than `bridge` and the thread does nothing else). The activity
   is `collective`, and the position that of the time around it.
2. The scope that began last: of a DataLoader, a backward pass, an optimizer, `zero_grad`, or an average of the weights.
3. A call that enqueues a collective, a wait for the GPU, or DDP's forward.
4. A pass: from its first to its last operator, and around them as `scopes.gaps` says.
5. No interval: see `scopes.gaps` for steps without a loader. With a loader: `forward` before the first backward pass;
   `clip` from there to the last work of the step; `after_step` after that work; `between` loops. In an evaluation:
   `evaluation`, and `after_step` after a loop that was left early. `unknown` where events were lost.

The user's own regions (`record_function`) may enclose anything, so they show no position.

A gap shorter than `bridge` between two segments of one phase is the time Python needs between two calls. It belongs to
the first of them.

The clock of the thread gives the activities of each segment.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from otel_zernel_libraries.training.ledger import MOMENTS, Moment, Position, Segment, ThreadClock, ThreadSamples
from otel_zernel_processors.phases.intake.intervals import AVERAGE, BATCH, NOISE, RUNS, ThreadInterval
from otel_zernel_processors.phases.scopes.cuts import (
    COLLECTIVE,
    ENQUEUE,
    IS_SCOPE,
    PRECEDENCE,
    SYNC,
    UNKNOWN,
    Cover,
    Cut,
    cuts_of,
)
from otel_zernel_processors.phases.scopes.gaps import Gaps, ThreadMark
from otel_zernel_processors.phases.scopes.steps import Step
from otel_zernel_processors.phases.scopes.time_ranges import TimeRange, intersection, length, union

_UNCOVERED = frozenset(
    UNKNOWN[position]
    for position in (Position.FORWARD, Position.CLIP, Position.AFTER_STEP, Position.BETWEEN, Position.UNKNOWN)
)
"""Moments of time without an interval. A short time between two scopes of one phase belongs to the first one."""
_NO_CLOCK = ThreadClock(())
_NESTED = 64
"""Intervals before an enqueued collective among which one may enclose it."""
_CALLS = frozenset({"collective", "sync", "ddp"})
"""Kinds whose precedence also depends on other facts."""
_NO_WORK = RUNS - {"update"} | {AVERAGE, BATCH, NOISE, "zero_grad", "data_loading", "collective", "user"}
_UPDATE, _COMPILE = UNKNOWN[Position.OPTIMIZER], UNKNOWN[Position.COMPILE]
_COMPILED = frozenset({Position.FORWARD, Position.BACKWARD})
_OF_EVALUATION = {**PRECEDENCE, "inference": PRECEDENCE["evaluation"], "forward": PRECEDENCE["evaluation"]}
_new = tuple.__new__
"""Makes a named tuple. Its own `__new__` takes twice as long."""
_INFERENCE = frozenset(
    moment
    for position in (Position.INFERENCE, Position.EVALUATION, Position.ENVIRONMENT)
    for moment in MOMENTS[position].values()
)


class Attribution(NamedTuple):
    """The segments of a step, which follow each other from its start to its end without a gap."""

    segments: list[Segment]
    overlap_ns: int
    """How long collectives were in flight while the thread did something else."""

    def phase_ns(self) -> dict[str, int]:
        """The time in each phase that occurs in the step."""
        spent: dict[str, int] = {}
        add_phases(spent, self.segments)
        return spent

    def inference_ns(self) -> int:
        """The time in passes without gradients, and between them. An evaluation in every hundredth step does not make
        the steps uneven."""
        return sum([end - start for start, end, moment, _, _ in self.segments if moment in _INFERENCE])


def attribute(
    step: Step,
    in_flight: Sequence[TimeRange],
    bridge_ns: int,
    samples: ThreadSamples | None = None,
    of_hit: float = 0.0,
) -> Attribution:
    """The attribution of a step. `in_flight` are the times of the process's collectives. `samples` has the samples of
    the thread's earlier steps, and takes those of this one. `of_hit` is the time (ns) of a hit of a probe."""
    flights = union([(max(start, step.start), min(end, step.end)) for start, end in in_flight]) if in_flight else []
    clock = ThreadClock(step.snapshots, samples, of_hit) if step.snapshots else _NO_CLOCK
    shows_gaps = step.has_runs or step.boundary != "loader" or step.kind == "between"
    gaps = Gaps(step, clock, bridge_ns) if shows_gaps else None
    covered = _covered(step, gaps.marks if gaps and step.has_runs else None)
    if flights:
        waits = union((start, end) for start, end, at in covered if at == SYNC)
        covered += [(start, end, COLLECTIVE) for start, end in intersection(waits, flights)]
        covered += _short_waits(covered, flights, bridge_ns)
    bounds = _work(step)
    uncovered = _gaps(step, gaps, bounds) if gaps else []
    if step.hides_update:
        uncovered = [
            (max(interval.end for interval in step.intervals if interval.kind == "backward"), step.end, _UPDATE)
        ]
    covered.sort()
    if step.losses:
        uncovered = _with_losses(step, covered, uncovered)
    cuts = _joined(cuts_of(step, covered, bounds, uncovered), bridge_ns)
    if step.compiles:
        cuts = ((start, end, _COMPILE if of.position in _COMPILED else of) for start, end, of in cuts)
    if clock:
        segments = [segment for cut in cuts for segment in clock.segments(*cut)]
    else:
        segments = [_new(Segment, (start, end, moment, (), None)) for start, end, moment in cuts]
    if not flights:
        return Attribution(segments, 0)
    exposed = union((start, end) for start, end, at in covered if at == COLLECTIVE)
    return Attribution(segments, length(flights) - length(intersection(flights, exposed)))


def _covered(step: Step, marks: Iterable[ThreadMark] | None) -> list[Cover]:
    """The intervals that show something. `marks` replace scopes and passes."""
    covered = [
        (interval.start, interval.end, at)
        for interval in step.intervals
        if (at := _precedence(interval) if interval.kind in _CALLS else PRECEDENCE.get(interval.kind)) is not None
    ]
    if marks is None:
        return covered
    calls = [cover for cover in covered if not IS_SCOPE[cover[2]]]
    kinds = _OF_EVALUATION if step.kind == "evaluation" else PRECEDENCE
    return calls + [(mark.start, mark.end, kinds[mark.kind]) for mark in marks if mark.start < mark.end]


def _precedence(interval: ThreadInterval) -> int | None:
    """The precedence of a call; None if it is ignored."""
    kind = interval.kind
    if kind == "collective":
        return None if interval.in_flight else ENQUEUE
    return COLLECTIVE if interval.waits_for_collective and kind in ("sync", "ddp") else PRECEDENCE[kind]


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


def _gaps(step: Step, gaps: Gaps, bounds: TimeRange) -> list[Cut]:
    """The gaps whose moment the marks around them show."""
    if step.boundary != "loader" or step.kind in ("between", "unfinished"):
        return gaps.between(step.start)
    if step.kind == "evaluation":
        return []
    return [*gaps.before_pass(), *gaps.between(bounds[1])]


def _with_losses(step: Step, covered: Sequence[Cover], gaps: Iterable[Cut]) -> list[Cut]:
    """The gaps, and the time that a loss of events voids: from the last mark before it to the first one after it."""
    marks = sorted({step.start, step.end, *(at for start, end, _ in covered for at in (start, end))})
    last = len(marks) - 1
    void = union(
        (marks[max(bisect_right(marks, begin) - 1, 0)], marks[min(bisect_left(marks, end), last)])
        for begin, end in step.losses
    )
    kept: list[Cut] = [(start, end, UNKNOWN[Position.UNKNOWN]) for start, end in void]
    for start, end, moment in gaps:
        for since, until in void:
            if since < end and start < until:
                if start < since:
                    kept.append((start, since, moment))
                start = until
        if start < end:
            kept.append((start, end, moment))
    return sorted(kept, key=lambda cut: cut[:2])


def _work(step: Step) -> TimeRange:
    """From the start of the first backward pass to the end of the last work of the step."""
    if step.kind == "evaluation":
        return step.end, step.end if step.works_until is None else step.works_until
    backward, work_end = step.end, step.start
    for interval in step.intervals:
        if interval.kind not in _NO_WORK:
            if interval.end > work_end:
                work_end = interval.end
            if interval.kind == "backward" and interval.start < backward:
                backward = interval.start
    return backward, work_end


def _joined(cuts: Sequence[Cut], bridge_ns: int) -> Iterator[Cut]:
    """The cuts where the moment changes. Short gaps are bridged, neighbours with one moment are joined."""
    begin, last = 0, len(cuts) - 1
    current: Moment | None = None
    for position, (start, end, moment) in enumerate(cuts):
        if end - start < bridge_ns and moment in _UNCOVERED and 0 < position < last:
            before, after = cuts[position - 1][2], cuts[position + 1][2]
            if before.phase is after.phase:
                moment = before
        if moment is not current:
            if current:
                yield begin, start, current
            begin, current = start, moment
    if current:
        yield begin, cuts[-1][1], current


def add_phases(spent: dict[str, int], segments: Iterable[Segment]) -> None:
    """Adds the time of segments to that in each phase (ns)."""
    for start, end, moment, times, _ in segments:
        for of, lasted in times or ((moment, end - start),):
            spent[of.phase] = spent.get(of.phase, 0) + lasted


def segments_after(segments: Sequence[Segment], time: int) -> Sequence[Segment]:
    """The part of the segments, which follow each other, after a time (ns). Of a divided segment only the moment is
    known."""
    if not segments or segments[0].start >= time:
        return segments
    return [
        segment if segment.start >= time else Segment(time, segment.end, segment.moment)
        for segment in segments
        if segment.end > time
    ]
