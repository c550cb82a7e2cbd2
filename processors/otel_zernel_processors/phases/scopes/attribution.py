"""Attributes each nanosecond of a step to exactly one phase.

Where intervals overlap, the first of these that applies wins:

1. `collective`: the thread waits for other ranks (in a wait of c10d, or in a CUDA sync while a collective is in flight)
2. `data_loading`: the thread waits for a batch
3. `backward`
4. `optimizer`, `zero_grad`
5. `enqueue`: the thread enqueues a collective; `sync`, `ddp`: it waits for the GPU, or runs DDP's forward
6. no interval: `forward` before the first backward pass; `compute` from there to the last work of the step (gradient
   clipping, loss scaling); `unknown` after that work (logging, checkpoints), between loops, and if events were lost.
   In an evaluation: `forward`, and `unknown` after a loop that was left early

The user's own regions (`record_function`) may enclose anything, so they are ignored.

A gap shorter than `bridge` between two segments of one phase is the time Python needs between two calls. It belongs to
that phase.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.scopes.steps import Step
from otel_zernel_processors.phases.scopes.time_ranges import TimeRange, intersection, length, union

PHASES = ("data_loading", "gpu_compute", "nccl_collective", "optimizer_step", "unknown")

PHASE_OF = {
    "collective": "nccl_collective",
    "data_loading": "data_loading",
    "backward": "gpu_compute",
    "optimizer": "optimizer_step",
    "zero_grad": "optimizer_step",
    "enqueue": "nccl_collective",
    "sync": "gpu_compute",
    "ddp": "gpu_compute",
    "forward": "gpu_compute",
    "compute": "gpu_compute",
    "unknown": "unknown",
}
"""The phase of each activity."""
_ACTIVITIES = ("collective", "data_loading", "backward", "optimizer", "zero_grad", "enqueue", "sync", "ddp")
"""The activities that intervals show, in the order of precedence."""
_PRECEDENCE = {name: at for at, name in enumerate(_ACTIVITIES) if name not in ("collective", "enqueue")}
_COLLECTIVE, _ENQUEUE, _SYNC = (_ACTIVITIES.index(name) for name in ("collective", "enqueue", "sync"))
_WINNER = ["", *(_ACTIVITIES[(mask & -mask).bit_length() - 1] for mask in range(1, 1 << len(_ACTIVITIES)))]
"""By a bit mask of activities that overlap: the one that wins; empty for no activity."""
_UNCOVERED = frozenset({"forward", "compute", "unknown"})
"""The activities of time without an interval."""
_CHUNK = 1024
"""Cuts or segments after which a pause is due."""
_NO_WORK = frozenset({"data_loading", "collective", "user"})

Cut = tuple[int, int, str]
"""[start, end) in ns, and the activity of the thread."""
Cover = tuple[int, int, int]
"""[start, end) in ns, and the precedence of the activity."""
Edge = tuple[int, int, int]
"""A time (ns), whether an interval begins (1), ends (-1) or neither (0) there, and its precedence."""


class Segment(NamedTuple):
    """A part of a step with one activity of its thread: [start, end) in ns."""

    start: int
    end: int
    activity: str

    @property
    def phase(self) -> str:
        """The phase of the activity."""
        return PHASE_OF[self.activity]


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
    work = attribute_in_chunks(step, in_flight, bridge_ns)
    try:
        while True:
            next(work)
    except StopIteration as done:
        attribution: Attribution = done.value
        return attribution


def attribute_in_chunks(
    step: Step, in_flight: Sequence[TimeRange], bridge_ns: int
) -> Generator[None, None, Attribution]:
    """Returns the attribution of a step. For a long step it yields every few ms, so that others get the event loop."""
    flights = union([(max(start, step.start), min(end, step.end)) for start, end in in_flight])
    covered = [(one.start, one.end, at) for one in step.intervals if (at := _precedence(one)) is not None]
    if flights:
        waits = union((start, end) for start, end, at in covered if at == _SYNC)
        covered += [(start, end, _COLLECTIVE) for start, end in intersection(waits, flights)]
    if step.is_long:
        yield
    bounds = _work(step)
    covered.sort()
    if step.is_long:
        yield
    cuts = yield from _cuts(step, covered, bounds)
    segments = []
    for segment in _joined(cuts, bridge_ns):
        segments.append(segment)
        if len(segments) % _CHUNK == 0:
            yield
    exposed = [(start, end) for start, end, activity in segments if activity == "collective"] if flights else []
    return Attribution(segments, length(flights) - length(intersection(flights, exposed)))


def _precedence(interval: ThreadInterval) -> int | None:
    """The precedence of an interval; None if it is ignored."""
    kind = interval.kind
    if kind == "collective":
        return None if interval.in_flight else _ENQUEUE
    if kind in ("sync", "ddp") and interval.waits_for_collective:
        return _COLLECTIVE
    return _PRECEDENCE.get(kind)


def _cuts(step: Step, covered: Sequence[Cover], bounds: TimeRange) -> Generator[None, None, list[Cut]]:
    """Cuts the step where its activity changes. `covered` is sorted."""
    cuts = _cuts_in_a_row(step, covered, bounds) if step.works_until is None else None
    if cuts is not None:
        return cuts
    cuts, edges = [], _edges(step, covered, bounds)
    if step.is_long:
        yield
    for cut in _swept(step, edges, bounds):
        cuts.append(cut)
        if len(cuts) % _CHUNK == 0:
            yield
    return cuts


def _cuts_in_a_row(step: Step, covered: Iterable[Cover], bounds: TimeRange) -> list[Cut] | None:
    """The cuts of a step whose intervals follow each other, as in most steps; None if they overlap."""
    cuts: list[Cut] = []
    at = step.start
    for start, end, precedence in covered:
        if not at <= start < end <= step.end:
            return None
        if at < start:
            cuts.append((at, start, _uncovered(step, at, bounds)))
        cuts.append((start, end, _ACTIVITIES[precedence]))
        at = end
    if at < step.end:
        cuts.append((at, step.end, _uncovered(step, at, bounds)))
    return cuts


def _edges(step: Step, covered: Iterable[Cover], bounds: TimeRange) -> list[Edge]:
    begin, finish = step.start, step.end
    edges = [(at, 0, 0) for at in bounds if begin < at < finish]
    for start, end, precedence in covered:
        if start < finish and begin < end and start < end:
            edges.append((max(start, begin), 1, precedence))
            edges.append((min(end, finish), -1, precedence))
    edges.sort()
    edges.append((finish, 0, 0))
    return edges


def _swept(step: Step, edges: Iterable[Edge], bounds: TimeRange) -> Iterator[Cut]:
    """The cuts of any step: between two edges, the activity with the highest precedence."""
    active, mask, at = [0] * len(_ACTIVITIES), 0, step.start
    for edge, change, precedence in edges:
        if edge > at:
            yield at, edge, _WINNER[mask] or _uncovered(step, at, bounds)
            at = edge
        active[precedence] += change
        mask = mask | 1 << precedence if active[precedence] else mask & ~(1 << precedence)


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


def _uncovered(step: Step, at: int, bounds: TimeRange) -> str:
    """The activity of time without an interval."""
    backward, work_end = bounds
    if step.lossy or step.kind in ("between", "unfinished"):
        return "unknown"
    if at >= work_end:
        return "unknown"
    return "forward" if at < backward else "compute"


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
