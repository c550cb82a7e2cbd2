"""The steps beyond `max_steps`: a span `steps` for neighbours, so that a time line has no holes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.otlp.points import Attributes, key_values
from otel_zernel_libraries.training import MERGED_STEPS, TRAINED, durations_attribute
from otel_zernel_processors.phases.emit.traces import TraceCandidate, identifier
from otel_zernel_processors.phases.scopes.activities import PHASES

_PARTS: Final = 100
"""Merged steps together last at most this part of an interval: a longer pause between two steps stays visible."""
_MOST: Final = 500
"""Steps of one span."""


@dataclass(slots=True)
class _MergedSteps:
    first: TraceCandidate
    end: int
    kind: str
    durations_ns: list[int] = field(default_factory=list)
    phase_ns: Counter[str] = field(default_factory=Counter)

    def add(self, candidate: TraceCandidate) -> None:
        step = candidate.closed.step
        self.end = max(self.end, step.end)
        self.kind = step.kind if step.kind == "training" else self.kind
        self.durations_ns.append(candidate.duration_ns)
        self.phase_ns.update(candidate.closed.attribution.phase_ns())

    def span(self, common: Attributes) -> Span:
        step = self.first.closed.step
        attributes = key_values(
            {
                **common,
                "zernel.step.number": self.first.number,
                "zernel.step.kind": self.kind,
                "thread.id": step.thread,
                "zernel.phase.source": "scopes",
                **{f"zernel.phase.{phase}": self.phase_ns[phase] / 1e9 for phase in PHASES},
            }
        )
        return Span(
            trace_id=identifier(f"{self.first.seed} merged", 16),
            span_id=identifier(f"{self.first.seed} merged", 8),
            name=MERGED_STEPS,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=step.start,
            end_time_unix_nano=self.end,
            attributes=[*attributes, durations_attribute(self.durations_ns)],
        )


class StepMerger:
    """Merges the steps of one process and interval, in the order of each thread."""

    def __init__(self, interval_ns: int) -> None:
        self._longest_ns = interval_ns // _PARTS
        self._merged: list[_MergedSteps] = []
        self._newest: dict[tuple[int, str], _MergedSteps] = {}
        """By thread and kind."""

    def add(self, candidate: TraceCandidate) -> None:
        """Adds the next step of a thread."""
        step = candidate.closed.step
        at = step.thread, "trained" if step.kind in TRAINED else step.kind
        found = self._newest.get(at)
        if found is None or not self._fits(found, step.end):
            found = self._newest[at] = _MergedSteps(candidate, step.end, step.kind)
            self._merged.append(found)
        found.add(candidate)

    def pop(self, common: Attributes) -> Iterator[Span]:
        """The spans since the last call, in order. `common` are attributes of each."""
        merged, self._merged, self._newest = self._merged, [], {}
        return (one.span(common) for one in merged)

    def _fits(self, merged: _MergedSteps, end: int) -> bool:
        return end - merged.first.closed.step.start <= self._longest_ns and len(merged.durations_ns) < _MOST
