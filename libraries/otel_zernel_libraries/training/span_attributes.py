"""Reads and writes the attributes of a span that has a fixed form."""

from collections.abc import Mapping
from typing import Final, Self, TypeVar

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.otlp.points import AttributeValue, key_values

_NS: Final = 1e9  # nanoseconds to the second
_LONGEST: Final = 9e9
"""Seconds: 285 years, as long as 63 bits can count ns."""
Value = TypeVar("Value")


class MalformedSpan(ValueError):
    """A span of a known kind lacks an attribute, or has one of another type. The text is the name of the attribute."""


class SpanAttributes:
    """The attributes of a span by name.

    Each method raises `MalformedSpan` if the attribute has another type, or if it is missing and has no default.
    """

    def __init__(self, pairs: Mapping[str, KeyValue]) -> None:
        self._pairs = pairs

    @classmethod
    def of(cls, span: Span) -> Self:
        return cls({pair.key: pair for pair in span.attributes})

    def __contains__(self, name: str) -> bool:
        return name in self._pairs

    def text(self, name: str, default: str | None = None) -> str:
        pair = self._pairs.get(name)
        if pair is None:
            return _given(name, default)
        return pair.value.string_value or _zero(pair, "string_value", "")

    def integer(self, name: str, default: int | None = None) -> int:
        pair = self._pairs.get(name)
        if pair is None:
            return _given(name, default)
        return pair.value.int_value or _zero(pair, "int_value", 0)

    def flag(self, name: str, default: bool | None = None) -> bool:
        pair = self._pairs.get(name)
        if pair is None:
            return _given(name, default)
        return pair.value.bool_value or _zero(pair, "bool_value", False)

    def data(self, name: str) -> bytes:
        """Bytes; empty if the attribute is missing."""
        pair = self._pairs.get(name)
        if pair is None:
            return b""
        return pair.value.bytes_value or _zero(pair, "bytes_value", b"")

    def duration_ns(self, name: str, default: int | None = None) -> int:
        """A number of seconds, in ns."""
        pair = self._pairs.get(name)
        if pair is None:
            return _given(name, default)
        return _in_ns(name, _seconds(name, pair.value))

    def durations_ns(self, name: str) -> tuple[int, ...]:
        """A list of numbers of seconds, in ns."""
        pair = self._pairs.get(name) or _given(name, None)
        values = pair.value.array_value.values
        if not pair.value.HasField("array_value"):
            raise MalformedSpan(name)
        return tuple(_in_ns(name, _seconds(name, value)) for value in values)


def _given(name: str, default: Value | None) -> Value:
    if default is None:
        raise MalformedSpan(name)
    return default


def _zero(pair: KeyValue, field: str, zero: Value) -> Value:
    """The value of an attribute that reads as zero: so does an attribute of another type."""
    if not pair.value.HasField(field):  # type: ignore[arg-type]  # a field of AnyValue
        raise MalformedSpan(pair.key)
    return zero


def _seconds(name: str, value: AnyValue) -> float:
    seconds = value.double_value or value.int_value
    if not seconds and value.WhichOneof("value") not in ("double_value", "int_value"):
        raise MalformedSpan(name)
    return seconds


def _in_ns(name: str, seconds: float) -> int:
    if not 0 <= seconds <= _LONGEST:
        raise MalformedSpan(name)
    return round(seconds * _NS)


def span_of(name: str, start_ns: int, end_ns: int, attributes: Mapping[str, AttributeValue | None]) -> Span:
    """A span without ids. Attributes that are None are left out."""
    given = {key: value for key, value in attributes.items() if value is not None}
    return Span(
        name=name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=end_ns,
        attributes=key_values(given),
    )
