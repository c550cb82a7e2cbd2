"""The fields that conditions read, by context. The names are those of OTTL."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_zernel.batch import Signal
from otel_zernel_libraries.conditions.item import Item
from otel_zernel_libraries.conditions.values import Value, from_any_value

METRIC_TYPES = {None: 0, "gauge": 1, "sum": 2, "histogram": 3, "exponential_histogram": 4, "summary": 5}
"""`metric.type` in OTTL, by the name of the field in OTLP's `Metric`."""
SEVERITIES: dict[str, int] = {name.removeprefix("SEVERITY_NUMBER_"): int(n) for name, n in SeverityNumber.items()}
"""The short names of severities: `WARN2` is 14."""
SPAN_KINDS = {number: name.removeprefix("SPAN_KIND_").capitalize() for name, number in Span.SpanKind.items()}
"""The names of span kinds in configurations: `Client`."""

ENUMS: dict[str, int] = {
    **{f"METRIC_DATA_TYPE_{(name or 'none').upper()}": number for name, number in METRIC_TYPES.items()},
    **{name: int(number) for name, number in AggregationTemporality.items()},
    **{name: int(number) for name, number in Span.SpanKind.items()},
    **{name: int(number) for name, number in Status.StatusCode.items()},
    **{name: int(number) for name, number in SeverityNumber.items()},
}


Context = Literal["resource", "scope", "metric", "datapoint", "span", "spanevent", "log"]
"""The kind of item that a condition is about."""
Reader = Callable[[Item], Value]

CONTEXTS_OF: Mapping[Signal, tuple[Context, ...]] = {
    "metrics": ("resource", "scope", "metric", "datapoint"),
    "traces": ("resource", "scope", "span", "spanevent"),
    "logs": ("resource", "scope", "log"),
}
"""The contexts of a signal, from the outside to the inside."""
ALIASES: Mapping[str, Context] = {"instrumentation_scope": "scope"}

_MEMBERS: Mapping[Context, Callable[[Item], Any]] = {
    "resource": lambda item: item.resource,
    "scope": lambda item: item.scope,
    "metric": lambda item: item.metric,
    "datapoint": lambda item: item.point,
    "span": lambda item: item.span,
    "spanevent": lambda item: item.event,
    "log": lambda item: item.log,
}
WITH_ATTRIBUTES = frozenset(_MEMBERS) - {"metric"}
"""The contexts whose messages have attributes."""


def visible_from(context: Context) -> tuple[Context, ...]:
    """The contexts whose fields a condition in `context` can read, from the outside to the inside."""
    (row,) = {row[: row.index(context) + 1] for row in CONTEXTS_OF.values() if context in row}
    return row


def inferred_context(used: Iterable[Context], signal: Signal) -> Context:
    """The innermost of the contexts whose fields a condition reads. Without any, that of the signal's items."""
    row = CONTEXTS_OF[signal]
    return max(used, key=row.index, default={"metrics": "datapoint", "traces": "span", "logs": "log"}[signal])  # type: ignore[arg-type]  # mypy infers str


def message_of(context: Context) -> Callable[[Item], Any]:
    """The function from an item to the message of a context."""
    return _MEMBERS[context]


def attribute_reader(context: Context, key: str) -> Reader:
    """Reads one attribute; None if it is missing."""
    message = _MEMBERS[context]

    def read(item: Item) -> Value:
        for pair in message(item).attributes:
            if pair.key == key:
                return from_any_value(pair.value)
        return None

    return read


def attributes_reader(context: Context) -> Reader:
    """Reads all attributes, as a dict."""
    message = _MEMBERS[context]
    return lambda item: {pair.key: from_any_value(pair.value) for pair in message(item).attributes}


def _plain(*names: str) -> dict[str, Callable[[Any], Value]]:
    """Readers of fields whose names are the same in OTLP."""
    return {name: _member(name) for name in names}


def _member(name: str) -> Callable[[Any], Value]:
    return lambda message: getattr(message, name)


def _optional(name: str) -> Callable[[Any], Value]:
    """Reads a field that only some types of points have; None for the others."""
    return lambda message: getattr(message, name, None)


def _number(name: str) -> Callable[[Any], Value]:
    """Reads the value of a number point if it is of this type, else None."""

    def read(point: Any) -> Value:
        is_number = hasattr(point, name)
        return getattr(point, name) if is_number and point.WhichOneof("value") == name else None

    return read


def _ids(*names: str) -> dict[str, Callable[[Any], Value]]:
    """Readers of ids: as bytes, and as text in hex."""
    texts = {f"{name}.string": _hex(name) for name in names}
    return _plain(*names) | texts


def _hex(name: str) -> Callable[[Any], Value]:
    return lambda message: getattr(message, name).hex()


def _metric_data(name: str) -> Callable[[Any], Value]:
    """Reads a field of the metric's data; None if its type has no such field."""

    def read(metric: Any) -> Value:
        kind = metric.WhichOneof("data")
        return getattr(getattr(metric, kind), name, None) if kind else None

    return read


FIELDS: Mapping[Context, Mapping[str, Callable[[Any], Value]]] = {
    "resource": _plain("dropped_attributes_count"),
    "scope": _plain("name", "version", "dropped_attributes_count"),
    "metric": {
        **_plain("name", "description", "unit"),
        "type": lambda metric: METRIC_TYPES[metric.WhichOneof("data")],
        "aggregation_temporality": _metric_data("aggregation_temporality"),
        "is_monotonic": _metric_data("is_monotonic"),
    },
    "datapoint": {
        "value_double": _number("as_double"),
        "value_int": _number("as_int"),
        **{name: _optional(name) for name in ("count", "sum", "scale", "zero_count")},
        **_plain("flags", "time_unix_nano", "start_time_unix_nano"),
    },
    "span": {
        **_plain("name", "kind", "flags", "trace_state", "start_time_unix_nano", "end_time_unix_nano"),
        **_plain("dropped_attributes_count", "dropped_events_count", "dropped_links_count"),
        **_ids("trace_id", "span_id", "parent_span_id"),
        "kind.string": lambda span: SPAN_KINDS.get(span.kind, ""),
        "status.code": lambda span: span.status.code,
        "status.message": lambda span: span.status.message,
    },
    "spanevent": _plain("name", "time_unix_nano", "dropped_attributes_count"),
    "log": {
        **_plain("severity_number", "severity_text", "event_name", "flags", "dropped_attributes_count"),
        **_plain("time_unix_nano", "observed_time_unix_nano"),
        **_ids("trace_id", "span_id"),
        "body": lambda log: from_any_value(log.body),
    },
}
"""The fields of each context besides `attributes`. Readers take the context's message."""
