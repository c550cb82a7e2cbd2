"""Every field of a batch, in the layout of the OpenTelemetry Collector's debug exporter."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_zernel.batch import Signal, points
from otel_zernel.batch.thin import LEVELS
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_exporters.debug import basic
from otel_zernel_exporters.debug.basic import plain

_KINDS = {
    "gauge": ("Gauge", "NumberDataPoints"),
    "sum": ("Sum", "NumberDataPoints"),
    "histogram": ("Histogram", "HistogramDataPoints"),
    "exponential_histogram": ("ExponentialHistogram", "ExponentialHistogramDataPoints"),
    "summary": ("Summary", "SummaryDataPoints"),
}
_VALUES = {
    "string_value": "Str",
    "bool_value": "Bool",
    "int_value": "Int",
    "double_value": "Double",
    "bytes_value": "Bytes",
    "array_value": "Slice",
    "kvlist_value": "Map",
}


def _lines(signal: Signal, message: Any) -> Iterator[str]:
    """Resources with their scopes, and these with their metrics, spans or records."""
    resource_title, scope_title, title, render = _TITLES[signal]
    resources, scopes, items = LEVELS[signal]
    for number, resource in enumerate(getattr(message, resources)):
        yield f"{resource_title} #{number}"
        yield f"Resource SchemaURL: {resource.schema_url}"
        yield from _attributes("Resource attributes:", resource.resource.attributes)
        for scope_number, scope in enumerate(getattr(resource, scopes)):
            yield f"{scope_title} #{scope_number}"
            yield f"{scope_title} SchemaURL: {scope.schema_url}"
            yield f"InstrumentationScope {scope.scope.name} {scope.scope.version}".rstrip()
            yield from _attributes("InstrumentationScope attributes:", scope.scope.attributes)
            for item_number, item in enumerate(getattr(scope, items)):
                yield f"{title} #{item_number}"
                yield from render(item)


def _attributes(title: str, attributes: Iterable[KeyValue], indent: str = "     ") -> Iterator[str]:
    for number, pair in enumerate(attributes):
        if number == 0:
            yield title
        yield f"{indent}-> {pair.key}: {_value(pair.value)}"


def _value(value: AnyValue) -> str:
    kind = value.WhichOneof("value")
    if kind is None:
        return "Empty()"
    simple = plain(value)
    return f"{_VALUES[kind]}({simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)})"


def _metric(metric: pb.Metric) -> Iterator[str]:
    kind = metric.WhichOneof("data")
    type_, title = _KINDS[kind] if kind else ("Empty", "")
    yield "Descriptor:"
    yield f"     -> Name: {metric.name}"
    yield f"     -> Description: {metric.description}"
    yield f"     -> Unit: {metric.unit}"
    yield f"     -> DataType: {type_}"
    if kind == "sum":
        yield f"     -> IsMonotonic: {str(metric.sum.is_monotonic).lower()}"
    if kind and (temporality := getattr(getattr(metric, kind), "aggregation_temporality", None)) is not None:
        yield f"     -> AggregationTemporality: {_name(pb.AggregationTemporality, temporality)}"
    for number, point in enumerate(points(metric)):
        yield f"{title} #{number}"
        yield from _point(point)


def _point(point: Any) -> Iterator[str]:
    yield from _attributes("Data point attributes:", point.attributes)
    yield f"StartTimestamp: {_time(point.start_time_unix_nano)}"
    yield f"Timestamp: {_time(point.time_unix_nano)}"
    if has_no_value(point):
        yield "NoRecordedValue: true"
    match point:
        case pb.NumberDataPoint():
            yield f"Value: {_number(point)}"
        case pb.SummaryDataPoint():
            yield from _summary(point)
        case pb.HistogramDataPoint():
            yield from _histogram(point)
        case pb.ExponentialHistogramDataPoint():
            yield from _exponential_histogram(point)
    yield from _exemplars(getattr(point, "exemplars", ()))


def _number(message: pb.NumberDataPoint | pb.Exemplar) -> str:
    kind = message.WhichOneof("value")
    return str(getattr(message, kind)) if kind else ""


def _summary(point: pb.SummaryDataPoint) -> Iterator[str]:
    yield f"Count: {point.count}"
    yield f"Sum: {point.sum}"
    for number, at in enumerate(point.quantile_values):
        yield f"QuantileValue #{number}: Quantile {at.quantile}, Value {at.value}"


def _counted(point: pb.HistogramDataPoint | pb.ExponentialHistogramDataPoint) -> Iterator[str]:
    yield f"Count: {point.count}"
    for title, field in (("Sum", "sum"), ("Min", "min"), ("Max", "max")):
        if point.HasField(field):  # type: ignore[arg-type]  # the stubs want a literal
            yield f"{title}: {getattr(point, field)}"


def _histogram(point: pb.HistogramDataPoint) -> Iterator[str]:
    yield from _counted(point)
    for number, bound in enumerate(point.explicit_bounds):
        yield f"ExplicitBounds #{number}: {bound}"
    for number, of_bucket in enumerate(point.bucket_counts):
        yield f"Buckets #{number}, Count: {of_bucket}"


def _exponential_histogram(point: pb.ExponentialHistogramDataPoint) -> Iterator[str]:
    yield from _counted(point)
    yield f"Scale: {point.scale}"
    negative = list(zip(count(point.negative.offset), point.negative.bucket_counts, strict=False))
    for index, of_bucket in reversed(negative):
        yield f"Bucket [-{_bound(index + 1, point.scale)}, -{_bound(index, point.scale)}), Count: {of_bucket}"
    if point.zero_count:
        threshold = point.zero_threshold
        yield f"Bucket [{-threshold if threshold else 0}, {threshold or 0}], Count: {point.zero_count}"
    for index, of_bucket in zip(count(point.positive.offset), point.positive.bucket_counts, strict=False):
        yield f"Bucket ({_bound(index, point.scale)}, {_bound(index + 1, point.scale)}], Count: {of_bucket}"


def _bound(index: int, scale: int) -> str:
    """The lower bound of an exponential bucket: (2 ** 2 ** -scale) ** index."""
    try:
        return f"{2.0 ** (index * 2.0**-scale):.6f}"
    except OverflowError:
        return "inf"


def _exemplars(exemplars: Iterable[pb.Exemplar]) -> Iterator[str]:
    for number, exemplar in enumerate(exemplars):
        if number == 0:
            yield "Exemplars:"
        yield f"Exemplar #{number}"
        yield f"     -> Trace ID: {exemplar.trace_id.hex()}"
        yield f"     -> Span ID: {exemplar.span_id.hex()}"
        yield f"     -> Timestamp: {_time(exemplar.time_unix_nano)}"
        yield f"     -> Value: {_number(exemplar)}"
        yield from _attributes("     -> FilteredAttributes:", exemplar.filtered_attributes, " " * 10)


def _span(span: Span) -> Iterator[str]:
    yield f"    Trace ID       : {span.trace_id.hex()}"
    yield f"    Parent ID      : {span.parent_span_id.hex()}"
    yield f"    ID             : {span.span_id.hex()}"
    yield f"    Name           : {span.name}"
    yield f"    Kind           : {_name(Span.SpanKind, span.kind)}"
    yield f"    TraceState     : {span.trace_state}"
    yield f"    Start time     : {_time(span.start_time_unix_nano)}"
    yield f"    End time       : {_time(span.end_time_unix_nano)}"
    yield f"    Status code    : {_name(Status.StatusCode, span.status.code)}"
    yield f"    Status message : {span.status.message}"
    yield f"    DroppedAttributesCount: {span.dropped_attributes_count}"
    yield f"    DroppedEventsCount: {span.dropped_events_count}"
    yield f"    DroppedLinksCount: {span.dropped_links_count}"
    yield from _attributes("Attributes:", span.attributes)
    yield from _events(span.events)
    yield from _links(span.links)


def _events(events: Iterable[Span.Event]) -> Iterator[str]:
    for number, event in enumerate(events):
        if number == 0:
            yield "Events:"
        yield f"SpanEvent #{number}"
        yield f"     -> Name: {event.name}"
        yield f"     -> Timestamp: {_time(event.time_unix_nano)}"
        yield f"     -> DroppedAttributesCount: {event.dropped_attributes_count}"
        yield from _attributes("     -> Attributes::", event.attributes, " " * 10)


def _links(links: Iterable[Span.Link]) -> Iterator[str]:
    for number, link in enumerate(links):
        if number == 0:
            yield "Links:"
        yield f"SpanLink #{number}"
        yield f"     -> Trace ID: {link.trace_id.hex()}"
        yield f"     -> ID: {link.span_id.hex()}"
        yield f"     -> TraceState: {link.trace_state}"
        yield f"     -> DroppedAttributesCount: {link.dropped_attributes_count}"
        yield from _attributes("     -> Attributes::", link.attributes, " " * 10)


def _log_record(record: LogRecord) -> Iterator[str]:
    yield f"ObservedTimestamp: {_time(record.observed_time_unix_nano)}"
    yield f"Timestamp: {_time(record.time_unix_nano)}"
    yield f"SeverityText: {record.severity_text}"
    yield f"SeverityNumber: {_name(SeverityNumber, record.severity_number)}({record.severity_number})"
    if record.event_name:
        yield f"EventName: {record.event_name}"
    yield f"Body: {_value(record.body)}"
    yield from _attributes("Attributes:", record.attributes)
    yield f"Trace ID: {record.trace_id.hex()}"
    yield f"Span ID: {record.span_id.hex()}"
    yield f"Flags: {record.flags}"


def _name(enum: Any, value: int) -> str:
    """`Cumulative` for AGGREGATION_TEMPORALITY_CUMULATIVE; an unknown number unchanged."""
    descriptor = enum.DESCRIPTOR.values_by_number.get(value)
    return descriptor.name.rpartition("_")[2].capitalize() if descriptor else str(value)


def _time(time_ns: int) -> str:
    """A time in Go's format, with nanoseconds."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


_TITLES: Final[Mapping[Signal, tuple[str, str, str, Callable[[Any], Iterator[str]]]]] = {
    "metrics": ("ResourceMetrics", "ScopeMetrics", "Metric", _metric),
    "traces": ("ResourceSpans", "ScopeSpans", "Span", _span),
    "logs": ("ResourceLog", "ScopeLogs", "LogRecord", _log_record),
}
"""The titles of a resource, a scope and an item, and the lines of an item."""
LAYOUT: basic.Layout = {**basic.LAYOUT, **{signal: partial(_lines, signal) for signal in _TITLES}}
