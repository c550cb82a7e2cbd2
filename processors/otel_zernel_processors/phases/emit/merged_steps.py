"""The steps beyond `max_steps`: a span `steps` for neighbours, so that a time line has no holes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel_libraries.training.names import PHASES, TRAINED
from otel_zernel_libraries.training.step_spans import MergedStepsSpan
from otel_zernel_processors.phases.emit.traces import TraceCandidate, identifier

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
        step, kind = candidate.closed.step, _kind_of(candidate)
        self.end = max(self.end, step.end)
        self.kind = kind if kind == "training" else self.kind
        if step.kind == "skipped":
            each, more = divmod(step.end - step.start, step.skipped)
            self.durations_ns += [each + (at < more) for at in range(step.skipped)]
        else:
            self.durations_ns.append(candidate.duration_ns)
        self.phase_ns.update(candidate.closed.attribution.phase_ns())

    def span(self, pid: int) -> Span:
        step = self.first.closed.step
        span = MergedStepsSpan(
            start_ns=step.start,
            end_ns=self.end,
            number=self.first.number,
            kind=self.kind,
            thread=step.thread,
            pid=pid,
            phase_ns=tuple(self.phase_ns[phase] for phase in PHASES),
            durations_ns=tuple(self.durations_ns),
        ).to_span()
        seed = f"{self.first.seed} merged"
        span.trace_id, span.span_id = identifier(seed, 16), identifier(seed, 8)
        return span


class StepMerger:
    """Merges the steps of one process and interval, in the order of each thread."""

    def __init__(self, interval_ns: int) -> None:
        self._longest_ns = interval_ns // _PARTS
        self._merged: list[_MergedSteps] = []
        self._newest: dict[tuple[int, str], _MergedSteps] = {}
        """By thread and kind."""

    def add(self, candidate: TraceCandidate) -> None:
        """Adds the next step of a thread."""
        step, kind = candidate.closed.step, _kind_of(candidate)
        at = step.thread, "trained" if kind in TRAINED else kind
        newest = self._newest.get(at)
        if newest is None or not self._fits(newest, step.end):
            newest = self._newest[at] = _MergedSteps(candidate, step.end, kind)
            self._merged.append(newest)
        newest.add(candidate)

    def pop(self, pid: int) -> Iterator[Span]:
        """The spans since the last call, in order. `pid` is that of their process."""
        merged, self._merged, self._newest = self._merged, [], {}
        return (steps.span(pid) for steps in merged)

    def _fits(self, merged: _MergedSteps, end: int) -> bool:
        return end - merged.first.closed.step.start <= self._longest_ns and len(merged.durations_ns) < _MOST


def _kind_of(candidate: TraceCandidate) -> str:
    """The kind of a step, or the most frequent one of steps without intervals."""
    if candidate.closed.step.kind != "skipped":
        return candidate.closed.step.kind
    counts = Counter[str]()
    for (kind, _), count in candidate.closed.repeated.steps.items():
        counts[kind] += count
    return counts.most_common(1)[0][0]
