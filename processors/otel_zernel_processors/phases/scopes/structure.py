"""Counts what happens how often in a step."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from otel_zernel_libraries.training.ledger import Position, Segment, StepEvent, collective_event
from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.scopes.steps import Step

_EVENTS: Final = {
    "data_loading": StepEvent("batch"),
    "backward": StepEvent("backward"),
    "optimizer": StepEvent("optimizer"),
    "update": StepEvent("optimizer"),
    "inference": StepEvent("inference"),
}
_OF_WORKERS: Final = StepEvent("worker_batch")


def events_of(step: Step, collectives: Iterable[ThreadInterval], segments: Sequence[Segment]) -> Counter[StepEvent]:
    """The events of a step. `collectives` are the calls that began in it, on any thread.

    Collectives whose calls have no spans, as those of gloo, count by the snapshots of the thread.
    """
    counts: Counter[StepEvent] = Counter()
    for one in step.intervals:
        if event := _EVENTS.get(one.kind):
            is_of_workers = one.kind == "data_loading" and "MultiProcessing" in one.name
            counts[_OF_WORKERS if is_of_workers else event] += 1
    calls = [one.collective for one in collectives if one.collective and not one.in_flight]
    calls = calls or [one.collective for one in collectives if one.collective]
    for call in calls:
        at = bisect_right(segments, call.start_ns, key=itemgetter(0)) - 1
        position = segments[at].position if at >= 0 else Position.UNKNOWN
        counts[collective_event(position, call.operation, call.bytes)] += 1
    if not calls:
        for segment in segments:
            if segment.work and segment.work.collectives:
                counts[StepEvent("collective", segment.position)] += segment.work.collectives
    return counts
