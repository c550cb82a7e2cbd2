"""Counts of a batch: one line for each signal, as in the OpenTelemetry Collector. Attributes and times as text."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from otel_zernel.batch import Signal, count_items
from otel_zernel_libraries.attributes.values import PlainValue, plain_value

Layout = Mapping[Signal, Callable[[Any], Iterator[str]]]
"""The lines of a message, by its signal."""
_WORDS: Final[Mapping[Signal, tuple[str, str, str]]] = {
    "metrics": ("Metrics", "metrics", "data points"),
    "traces": ("Traces", "spans", "spans"),
    "logs": ("Logs", "logs", "log records"),
    "profiles": ("Profiles", "profiles", "sample records"),
}


def _line(signal: Signal, message: Any) -> Iterator[str]:
    """`Metrics {"resource metrics": 1, "metrics": 10, "data points": 100}`; other signals have two numbers."""
    title, name, items = _WORDS[signal]
    resources = getattr(message, f"resource_{name}")
    counts = {f"resource {name}": len(resources)}
    if signal == "metrics":
        counts["metrics"] = sum(len(scope.metrics) for resource in resources for scope in resource.scope_metrics)
    yield f"{title} {json.dumps({**counts, items: count_items(message)})}"


LAYOUT: Final[Layout] = {signal: partial(_line, signal) for signal in _WORDS}


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
