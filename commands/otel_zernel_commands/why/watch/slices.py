"""The steps, their parts, and the collectives of the watched processes, as slices of time on tracks."""

from collections.abc import Iterator
from typing import NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from otel_zernel.batch import Batch
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.points import scalars_of
from otel_zernel_libraries.training.span_attributes import MalformedSpan
from otel_zernel_libraries.training.step_spans import SCOPE_NAME, MergedStepsSpan, SegmentSpan, StepSpan, step_of
from otel_zernel_libraries.training.words import moment_name

MOST_SLICES = 200_000
"""Slices of all processes: about 12 MB in a trace."""


class Slice(NamedTuple):
    """A part of the time of a process. Times are ns since 1970."""

    pid: int
    track: str
    """The thread, or the kind of what it shows."""
    name: str
    category: str
    """`zernel.phase` of a part of a step; else its kind."""
    start: int
    end: int


class Slices:
    """The first slices of a watch."""

    def __init__(self) -> None:
        self.all: list[Slice] = []
        self.is_full = False

    def take(self, batch: Batch) -> None:
        """Adds those of the spans that `phases` emits."""
        for of_resource in batch.spans.resource_spans:
            pid = scalars_of(of_resource.resource.attributes).get("process.pid")
            if isinstance(pid, int):
                for part in _slices(pid, of_resource):
                    self.is_full = len(self.all) >= MOST_SLICES
                    if not self.is_full:
                        self.all.append(part)


def _slices(pid: int, of_resource: ResourceSpans) -> Iterator[Slice]:
    """A batch has whole traces, a step before its parts."""
    threads: dict[bytes, int] = {}
    for scope in of_resource.scope_spans:
        for span in scope.spans if scope.scope.name == SCOPE_NAME else ():
            try:
                if step := step_of(span):
                    threads[span.span_id] = step.thread
                    yield _of_step(pid, step)
                elif span.parent_span_id in threads:
                    yield _of_part(pid, threads[span.parent_span_id], span)
            except MalformedSpan:  # the state counts it
                continue


def _of_step(pid: int, step: StepSpan | MergedStepsSpan) -> Slice:
    if isinstance(step, MergedStepsSpan):
        name = f"{len(step.durations_ns)} steps from {step.number}"
        return Slice(pid, "more steps", name, "steps", step.start_ns, step.end_ns)
    return Slice(pid, f"thread {step.thread}", f"{step.kind} step {step.number}", "step", step.start_ns, step.end_ns)


def _of_part(pid: int, thread: int, span: Span) -> Slice:
    """A part of the step, or the span of a collective or a wait for the GPU, which may overlap others."""
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    kind = next((pair.value.string_value for pair in span.attributes if pair.key == semconv.INTERVAL), "")
    if kind:
        track = "GPU waits" if kind.startswith("sync") else "collectives"
        return Slice(pid, track, span.name, kind, start, end)
    part = SegmentSpan.from_span(span)
    name = moment_name(part.position, part.activity or "unknown") if part.position else part.name
    return Slice(pid, f"thread {thread}", name, part.phase, start, end)
