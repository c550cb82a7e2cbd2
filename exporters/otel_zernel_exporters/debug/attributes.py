"""OTLP attributes and times as text."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

Plain = str | bool | int | float | list["Plain"] | dict[str, "Plain"] | None


def plain(value: AnyValue) -> Plain:
    """The value as Python's own types; bytes in hex."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: plain(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return value.bytes_value.hex()
    return getattr(value, kind) if kind else None


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
