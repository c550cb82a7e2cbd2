"""Reads the traces of steps that `phases` emits."""

from collections.abc import Iterator

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from otel_zernel_commands.why.seen.step_bars import longest_segments
from otel_zernel_libraries.training import MERGED_STEPS, BarSegment, StepBar, bar_of, scalars_of


def bars_of(spans: ResourceSpans) -> Iterator[StepBar]:
    """A bar for each span `step` or `steps` of one process. A batch has whole traces, a step before its parts."""
    steps: dict[bytes, Span] = {}
    parts: dict[bytes, list[BarSegment]] = {}
    for span in (span for scope in spans.scope_spans for span in scope.spans):
        if span.name in ("step", MERGED_STEPS):
            steps[span.span_id] = span
        elif span.parent_span_id in steps:
            parts.setdefault(span.parent_span_id, []).append(_segment(span))
    return (bar_of(step, longest_segments(parts.get(id_, ()))) for id_, step in steps.items())


def _segment(span: Span) -> BarSegment:
    named = scalars_of(span.attributes)
    phase, detail = str(named.get("zernel.phase", "unknown")), str(named.get("zernel.phase.detail", span.name))
    return BarSegment(phase, detail, span.start_time_unix_nano, span.end_time_unix_nano)
