"""Reads the traces of steps that `phases` emits."""

from collections.abc import Iterable, Iterator

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_commands.why.seen.step_bars import PHASES, BarSegment, StepBar, longest_segments

_NS = 1e9  # nanoseconds to the second


def bars_of(spans: ResourceSpans) -> Iterator[StepBar]:
    """A bar for each step of one process. A batch has whole traces, and the span of a step comes before its parts."""
    steps: dict[bytes, Span] = {}
    parts: dict[bytes, list[BarSegment]] = {}
    for span in (span for scope in spans.scope_spans for span in scope.spans):
        if span.name == "step":
            steps[span.span_id] = span
        elif span.parent_span_id in steps:
            parts.setdefault(span.parent_span_id, []).append(_segment(span))
    return (_bar(step, parts.get(id_, ())) for id_, step in steps.items())


def scalars_of(pairs: Iterable[KeyValue]) -> dict[str, AttributeValue]:
    """Attributes with a scalar value."""
    kinds = ((pair, pair.value.WhichOneof("value")) for pair in pairs)
    scalar = ("string_value", "int_value", "double_value", "bool_value")
    return {pair.key: getattr(pair.value, kind) for pair, kind in kinds if kind in scalar}


def _segment(span: Span) -> BarSegment:
    named = scalars_of(span.attributes)
    phase, detail = str(named.get("zernel.phase", "unknown")), str(named.get("zernel.phase.detail", span.name))
    return BarSegment(phase, detail, span.start_time_unix_nano, span.end_time_unix_nano)


def _bar(step: Span, segments: Iterable[BarSegment]) -> StepBar:
    named = scalars_of(step.attributes)
    phase_s = (named.get(f"zernel.phase.{phase}", 0.0) for phase in PHASES)
    return StepBar(
        start_ns=step.start_time_unix_nano,
        end_ns=step.end_time_unix_nano,
        kind=str(named.get("zernel.step.kind", "")),
        number=int(named.get("zernel.step.number", 0)),  # type: ignore[arg-type]  # an int by phases' README
        phase_ns=tuple(round(float(spent) * _NS) for spent in phase_s),  # type: ignore[arg-type]  # a double
        segments=longest_segments(segments),
        longest_ns=step.end_time_unix_nano - step.start_time_unix_nano,
    )
