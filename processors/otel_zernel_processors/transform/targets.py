"""The fields that statements can change."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_zernel.text import one_line
from otel_zernel_libraries.conditions import ConditionFailed, Context, Value, to_any_value

Write = Callable[[Any, Value], None]
"""Changes one field of a message. Raises `ConditionFailed` if the value has the wrong type."""


def _text(name: str) -> Write:
    def write(message: Any, value: Value) -> None:
        setattr(message, name, _checked(value, str, name))

    return write


def _checked(value: Value, kind: type, name: str) -> Any:
    if type(value) is not kind:
        raise ConditionFailed(f"{name} must be {_KINDS[kind]}, not {one_line(repr(value))}")
    return value


_KINDS = {str: "a text", int: "an integer", float: "a double"}


def _natural(name: str, largest: int) -> Write:
    """Writes an integer from 0 to `largest`."""

    def write(message: Any, value: Value) -> None:
        if not 0 <= _checked(value, int, name) <= largest:
            raise ConditionFailed(f"{name} must be from 0 to {largest}, not {value}")
        setattr(message, name, value)

    return write


def _status(name: str, write: Write) -> Write:
    return lambda span, value: write(span.status, value)


def _number(point: Any, value: Value) -> None:
    """Writes the value of a number point, as double or integer."""
    if not hasattr(point, "as_double"):
        raise ConditionFailed("only data points of gauges and sums have a value")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConditionFailed(f"the value must be a number, not {one_line(repr(value))}")


def _double(point: Any, value: Value) -> None:
    _number(point, value)
    point.as_double = float(value)


def _integer(point: Any, value: Value) -> None:
    _number(point, value)
    if not math.isfinite(value) or not -(2**63) <= value < 2**63:
        raise ConditionFailed(f"{value} does not fit into 64 bits")
    point.as_int = int(value)


_TIME = 2**64 - 1
WRITERS: Mapping[Context, Mapping[str, Write]] = {
    "resource": {},
    "scope": {name: _text(name) for name in ("name", "version")},
    "metric": {name: _text(name) for name in ("name", "description", "unit")},
    "datapoint": {
        "value_double": _double,
        "value_int": _integer,
        **{name: _natural(name, _TIME) for name in ("time_unix_nano", "start_time_unix_nano")},
    },
    "span": {
        "name": _text("name"),
        "kind": _natural("kind", max(Span.SpanKind.values())),
        "status.code": _status("code", _natural("code", max(Status.StatusCode.values()))),
        "status.message": _status("message", _text("message")),
        **{name: _natural(name, _TIME) for name in ("start_time_unix_nano", "end_time_unix_nano")},
    },
    "spanevent": {"name": _text("name"), "time_unix_nano": _natural("time_unix_nano", _TIME)},
    "log": {
        "body": lambda log, value: log.body.CopyFrom(to_any_value(value)),
        "severity_number": _natural("severity_number", 24),
        "severity_text": _text("severity_text"),
        "event_name": _text("event_name"),
        **{name: _natural(name, _TIME) for name in ("time_unix_nano", "observed_time_unix_nano")},
    },
}
"""The writable fields of each context besides `attributes`."""


def write_attribute(key: str) -> Write:
    """Sets one attribute."""

    def write(message: Any, value: Value) -> None:
        pair = next((pair for pair in message.attributes if pair.key == key), None)
        if pair is None:
            pair = message.attributes.add(key=key)
        pair.value.CopyFrom(to_any_value(value))

    return write
