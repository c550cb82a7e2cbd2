"""The layout of messages: the parts of a batch, their keys and topics, and their sizes. No I/O.

A batch is divided by the topics and keys of its parts. The OpenTelemetry Collector uses a hash of resource attributes
as the key of a message:
https://github.com/open-telemetry/opentelemetry-collector-contrib/blob/main/pkg/pdatautil/hash.go
Pieces are split until each one fits into a message: by resource, scope, metric and point.
"""

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch, Signal, split_batch
from otel_zernel.batch.parsing import parse
from otel_zernel.batch.pieces import count_encoded
from otel_zernel.batch.thin import LEVELS, thin_type
from otel_zernel.errors import DecodeError
from otel_zernel.otlp.json import to_json
from otel_zernel_exporters.kafka.config import KafkaExporterConfig
from otel_zernel_libraries.clients.kafka.client_config import Encoding, check_topic

_SECOND_HALF: Final = b"\xf3"
_KEY: Final = b"\xf4"
_EMPTY: Final = b"\xf5"
_BYTES: Final = b"\xf6"
_STRING: Final = b"\xf7"
_TRUE: Final = b"\xf8"
_FALSE: Final = b"\xf9"
_INTEGER: Final = b"\xfa"
_DOUBLE: Final = b"\xfb"
_MAP, _MAP_END = b"\xfc", b"\xfd"
_ARRAY, _ARRAY_END = b"\xfe", b"\xff"


def attributes_hash(attributes: Iterable[KeyValue]) -> bytes:
    """16 bytes: two xxHash64 in little-endian order. They do not depend on the order of the attributes."""
    from xxhash import xxh64_intdigest  # an optional package

    text = _map(attributes)
    if not text:
        return bytes(16)
    return struct.pack("<QQ", xxh64_intdigest(text), xxh64_intdigest(text + _SECOND_HALF))


def _map(attributes: Iterable[KeyValue]) -> bytes:
    """The attributes in the order of their names. Of two with the same name, the value of the first counts twice."""
    names: list[str] = []
    values: dict[str, AnyValue] = {}
    for attribute in attributes:
        names.append(attribute.key)
        values.setdefault(attribute.key, attribute.value)
    return b"".join(_KEY + name.encode() + _value(values[name]) for name in sorted(names))


def _value(value: AnyValue) -> bytes:
    match value.WhichOneof("value"):
        case "string_value":
            return _STRING + value.string_value.encode()
        case "bool_value":
            return _TRUE if value.bool_value else _FALSE
        case "int_value":
            return _INTEGER + struct.pack("<q", value.int_value)
        case "double_value":
            return _DOUBLE + struct.pack("<d", value.double_value)
        case "bytes_value":
            return _BYTES + value.bytes_value
        case "kvlist_value":
            return _MAP + _map(value.kvlist_value.values) + _MAP_END
        case "array_value":
            return _ARRAY + b"".join(map(_value, value.array_value.values)) + _ARRAY_END
        case _:
            return _EMPTY


_KNOWN_RESOURCES: Final = 4096
"""Resources whose topics and keys are remembered."""

Place = tuple[str, bytes | None]
"""A topic and a key."""


@dataclass(frozen=True, slots=True)
class MessagePiece:
    """A part of a batch for one message."""

    signal: Signal
    encoded: bytes
    topic: str
    key: bytes | None = None

    def batch(self) -> Batch:
        """The piece as a batch. Raises `DecodeError`."""
        return Batch.encoded(self.signal, self.encoded, count_encoded(self.signal, self.encoded))


class MessageLayout:
    """Divides batches by the topics and keys of their resources or traces."""

    def __init__(self, config: KafkaExporterConfig) -> None:
        self._config = config
        self._by_resource: dict[Signal, bool | list[str]] = {
            "metrics": config.partition_metrics_by_resource_attributes,
            "traces": False,
            "logs": config.partition_logs_by_resource_attributes,
        }
        self._by_trace: dict[Signal, bool] = {
            "metrics": False,
            "traces": config.partition_traces_by_id,
            "logs": config.partition_logs_by_trace_id,
        }
        self._place = lru_cache(_KNOWN_RESOURCES)(self._place_of)

    def divides(self, signal: Signal) -> bool:
        """Whether batches of the signal have to be read."""
        return bool(self._config.topic_from_attribute or self._by_resource[signal] or self._by_trace[signal])

    def pieces(self, signal: Signal, batch: Batch) -> list[MessagePiece]:
        """The pieces of one signal of a batch. Raises `DecodeError`."""
        encoded = batch.bytes_of(signal)
        if not self.divides(signal):
            return [MessagePiece(signal, encoded, self._config.topic_of(signal).topic)]
        try:
            groups = self._groups(signal, thin_type(signal).FromString(encoded))
        except ProtobufDecodeError as error:
            raise DecodeError(str(error)) from error
        if len(groups) == 1:
            ((topic, key),) = groups
            return [MessagePiece(signal, encoded, topic, key)]
        return [
            MessagePiece(signal, message.SerializeToString(), topic, key) for (topic, key), message in groups.items()
        ]

    def _groups(self, signal: Signal, message: Message) -> dict[Place, Message]:
        empty = thin_type(signal)
        groups: dict[Place, Message] = {}
        resources, scopes, items = LEVELS[signal]
        for resource in getattr(message, resources):
            place = self._place(signal, resource.resource.SerializeToString())
            if not self._by_trace[signal]:
                getattr(groups.setdefault(place, empty()), resources).append(resource)
                continue
            for key, parts in _by_trace(resource, scopes, items).items():
                target = getattr(groups.setdefault((place[0], key), empty()), resources).add(
                    resource=resource.resource, schema_url=resource.schema_url
                )
                for scope, of_scope in parts:
                    getattr(target, scopes).add(scope=scope.scope, schema_url=scope.schema_url, **{items: of_scope})
        return groups

    def _place_of(self, signal: Signal, resource: bytes) -> Place:
        attributes = parse(Resource, resource).attributes
        return self._topic(signal, attributes), self._key(signal, attributes)

    def _topic(self, signal: Signal, attributes: Iterable[KeyValue]) -> str:
        topic = self._config.topic_of(signal).topic
        name = self._config.topic_from_attribute
        chosen = next((attribute.value.string_value for attribute in attributes if name and attribute.key == name), "")
        try:
            return check_topic(chosen) if chosen else topic
        except ValueError:
            return topic

    def _key(self, signal: Signal, attributes: Iterable[KeyValue]) -> bytes | None:
        chosen = self._by_resource[signal]
        if not chosen:
            return None
        return attributes_hash(
            attributes if chosen is True else [attribute for attribute in attributes if attribute.key in chosen]
        )


def _by_trace(resource: Any, scopes: str, items: str) -> dict[bytes, list[tuple[Any, list[Any]]]]:
    """The items of a resource by the trace id as hexadecimal digits: for each, the scopes and their items."""
    groups: dict[bytes, list[tuple[Any, list[Any]]]] = {}
    for scope in getattr(resource, scopes):
        for key, group in _grouped(getattr(scope, items), lambda item: item.trace_id.hex().encode()).items():
            groups.setdefault(key, []).append((scope, group))
    return groups


def _grouped(items: Iterable[Any], key: Callable[[Any], bytes]) -> dict[bytes, list[Any]]:
    groups: dict[bytes, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def names(batch: Batch) -> Iterator[str]:
    """The names of the metrics and spans in a batch, for messages."""
    for resource in batch.metrics.resource_metrics:
        yield from (metric.name for scope in resource.scope_metrics for metric in scope.metrics)
    for spans in batch.spans.resource_spans:
        yield from (span.name for scope in spans.scope_spans for span in scope.spans)


_MARGIN: Final = 0.9
"""The share of the limit that pieces aim at, since points differ in size."""


@dataclass(frozen=True, slots=True)
class EncodedPiece:
    """A piece with the value of its message."""

    piece: MessagePiece
    value: bytes


@dataclass(frozen=True, slots=True)
class OversizedItem:
    """A single point, span or log record that does not fit into a message."""

    signal: Signal
    name: str
    size: int
    """The size of its message in bytes."""

    def __str__(self) -> str:
        noun = {"metrics": "a point of ", "traces": "the span ", "logs": "a log record"}[self.signal]
        return f"{noun}{self.name:.100}".strip()


def encode(piece: MessagePiece, encoding: Encoding) -> EncodedPiece:
    """The piece with its value. Raises `DecodeError` if it has to be read and is not valid."""
    value = piece.encoded if encoding == "otlp_proto" else to_json(piece.batch().message(piece.signal))
    return EncodedPiece(piece, value)


def fitting(piece: MessagePiece, encoding: Encoding, limit: int) -> Iterator[EncodedPiece | OversizedItem]:
    """Pieces whose values have at most `limit` bytes, in order. Raises `DecodeError`."""
    encoded = encode(piece, encoding)
    if len(encoded.value) <= limit:
        yield encoded
        return
    share = _MARGIN * limit / len(encoded.value)
    for part in parts(piece, share):
        if isinstance(part, OversizedItem):
            yield OversizedItem(part.signal, part.name, len(encoded.value))
        else:
            yield from fitting(part, encoding, limit)


def parts(piece: MessagePiece, share: float) -> Iterator[MessagePiece | OversizedItem]:
    """The piece in parts of about this share of its items, at least two. A single item is oversized."""
    batch = piece.batch()
    items = batch.item_count
    if items <= 1:
        if items:
            name = next(names(batch), "")
            yield OversizedItem(piece.signal, name, len(piece.encoded))
        return
    size = max(1, min(math.ceil(items * share), (items + 1) // 2))
    for part in split_batch(batch, size):
        yield MessagePiece(piece.signal, part.bytes_of(piece.signal), piece.topic, piece.key)
