"""Decodes records: OTLP as JSON, which names its signal, or as protobuf, which does not."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from otel_zernel.batch import SIGNALS, Batch, Signal
from otel_zernel.batch.signals import MESSAGE_TYPES, SignalData
from otel_zernel.batch.thin import thin_type
from otel_zernel.errors import DecodeError
from otel_zernel.otlp.json import parse_logs_json, parse_metrics_json, parse_spans_json

# Keys of JSON objects are always field names in OTLP, and quotes inside strings are escaped.
_SIGNAL_KEY = re.compile(rb'"resource(Metrics|Spans|Logs)"\s*:')
_PARSERS: Final[Mapping[str, Callable[[bytes], SignalData]]] = {
    "metrics": parse_metrics_json,
    "spans": parse_spans_json,
    "logs": parse_logs_json,
}
_KEYWORDS: Final[Mapping[Signal, str]] = {"metrics": "metrics", "traces": "spans", "logs": "logs"}
LEVELS: Final[Mapping[Signal, tuple[str, str, str]]] = {
    "metrics": ("resource_metrics", "scope_metrics", "metrics"),
    "traces": ("resource_spans", "scope_spans", "spans"),
    "logs": ("resource_logs", "scope_logs", "log_records"),
}


def decode_protobuf(data: bytes, signal: Signal | None) -> Batch:
    """The batch in an encoded message. `signal` is None if it is unknown. Raises `DecodeError`."""
    return Batch.from_bytes(**{_KEYWORDS[signal or signal_of(data)]: data})


def signals_in(text: bytes) -> set[str]:
    """The signals that a JSON document names by keys: `metrics`, `spans` and `logs`. It may be damaged otherwise."""
    return {key.decode().lower() for key in _SIGNAL_KEY.findall(text)}


def decode_json(text: bytes) -> Batch:
    """The batch in a JSON document. Raises `DecodeError`."""
    signals = signals_in(text)
    if not signals:
        raise DecodeError("not OTLP: it has neither resourceMetrics nor resourceSpans nor resourceLogs")
    messages: dict[str, Any] = {signal: _PARSERS[signal](text) for signal in signals}
    return Batch(**messages)


def signal_of(encoded: bytes) -> Signal:
    """The signal of an encoded message, by the types of its fields. Raises `DecodeError` if none fits.

    The messages of all signals begin alike. A metric, a span and a log record differ in the wire types of most fields.
    A message with a text that is not UTF-8, or too deep a value, only has the thin type of its signal.
    """
    for type_of in (MESSAGE_TYPES.__getitem__, thin_type):
        for signal in SIGNALS:
            try:
                message = type_of(signal).FromString(encoded)
            except ProtobufDecodeError:
                continue
            item = next(_items(signal, message), None)
            if item is not None and len(UnknownFieldSet(item)) == 0 and _is_plausible(signal, item):
                return signal
    raise DecodeError("not OTLP, or of an unknown signal")


def _items(signal: Signal, message: Message) -> Iterator[Any]:
    resources, scopes, items = LEVELS[signal]
    for resource in getattr(message, resources):
        for scope in getattr(resource, scopes):
            yield from getattr(scope, items)


def _is_plausible(signal: Signal, item: Any) -> bool:
    if signal == "metrics":
        return bool(item.name) or item.WhichOneof("data") is None
    if signal == "traces":
        has_time_or_id = bool(item.start_time_unix_nano or item.end_time_unix_nano or item.trace_id)
        return has_time_or_id and len(item.trace_id) in (0, 16) and len(item.span_id) in (0, 8)
    return True
