"""OTLP attributes and times as text."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from otel_zernel_libraries.attributes.values import PlainValue, plain_value


def plain(value: AnyValue) -> PlainValue:
    """The value as Python's own types; bytes in hex."""
    return plain_value(value, bytes.hex)


def text(value: AnyValue) -> str:
    """The value as text; arrays and maps as JSON."""
    simple = plain(value)
    return simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)


def texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    """The attributes with their values as text."""
    return {pair.key: text(pair.value) for pair in attributes}


def utc(time_ns: int) -> str:
    """A time in ns since 1970, as RFC 3339 to the second."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
