"""Counts what happens how often in a step."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final

from otel_zernel_libraries.training.interval_spans import CollectiveSpan
from otel_zernel_libraries.training.ledger import Position, Segment, StepEvent, collective_event
from otel_zernel_processors.phases.intake.intervals import BATCH, ThreadInterval
from otel_zernel_processors.phases.scopes.steps import Step

_BATCH: Final = StepEvent("batch")
_EVENTS: Final = {
    "data_loading": _BATCH,
    "backward": StepEvent("backward"),
    "optimizer": StepEvent("optimizer"),
    "update": StepEvent("optimizer"),
    "inference": StepEvent("inference"),
}
_OF_WORKERS: Final = StepEvent("worker_batch")
_ITERATOR: Final = StepEvent("iterator")
_WORKER_START: Final = StepEvent("worker_start")


def events_of(
    step: Step, collectives: Sequence[ThreadInterval], segments: Sequence[Segment]
) -> Mapping[StepEvent, int]:
    """The events of a step. `collectives` are the calls that began in it, on any thread. Equal steps may share a value.

    Collectives whose calls have no spans, as those of gloo, count by the snapshots of the thread.
    """
    of_intervals = _of_intervals(tuple([(interval.kind, interval.name) for interval in step.intervals]))
    if not (step.snapshots or collectives):
        return of_intervals
    counts = dict(of_intervals)
    _count_iterators(step, segments, counts)
    calls = _calls(collectives) if collectives else ()
    for call in calls:
        at = bisect_right(segments, call.start_ns, key=itemgetter(0)) - 1
        position = segments[at].position if at >= 0 else Position.UNKNOWN
        event = collective_event(position, call.operation, call.bytes)
        counts[event] = counts.get(event, 0) + 1
    if step.snapshots and not calls:
        for segment in segments:
            if segment.work and segment.work.collectives:
                event = StepEvent("collective", segment.position)
                counts[event] = counts.get(event, 0) + segment.work.collectives
    return counts


@lru_cache(maxsize=256)
def _of_intervals(calls: tuple[tuple[str, str], ...]) -> Mapping[StepEvent, int]:
    """The events of intervals of these kinds and names, which most steps of a loop share."""
    counts: dict[StepEvent, int] = {}
    for kind, name in calls:
        if event := _EVENTS.get(kind):
            if event is _BATCH and "MultiProcessing" in name:
                event = _OF_WORKERS
            counts[event] = counts.get(event, 0) + 1
    return counts


def _count_iterators(step: Step, segments: Sequence[Segment], counts: dict[StepEvent, int]) -> None:
    """Counts the iterators of DataLoaders, and the workers that they start: `scopes.gaps` says where such loads
    begin."""
    drawn = {interval.start for interval in step.intervals if interval.kind == BATCH}
    for segment in segments if drawn else ():
        if segment.position is Position.LOAD and segment.start in drawn and segment.work and segment.work.forks:
            counts[_ITERATOR] = counts.get(_ITERATOR, 0) + 1
            counts[_WORKER_START] = counts.get(_WORKER_START, 0) + segment.work.forks


def _calls(collectives: Sequence[ThreadInterval]) -> list[CollectiveSpan]:
    """The calls, once each: the time in flight of a collective counts only if no call has a span."""
    calls = [interval.collective for interval in collectives if interval.collective and not interval.in_flight]
    return calls or [interval.collective for interval in collectives if interval.collective]
