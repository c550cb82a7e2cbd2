"""Decodes records: checks and counts OTLP, reads JSON, and adds extracted headers to the resources."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError as ProtobufDecodeError
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from otel_zernel.batch import Signal
from otel_zernel.batch.pieces import count_encoded
from otel_zernel.batch.signals import MESSAGE_TYPES
from otel_zernel.batch.thin import LEVELS, thin_type
from otel_zernel.errors import DecodeError
from otel_zernel.otlp.json import parse_json
from otel_zernel_libraries.clients.kafka.client_config import Encoding

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """The value of a record as an encoded message."""

    encoded: bytes
    items: int


def decode_record(
    signal: Signal, encoding: Encoding, value: bytes, temporalities: set[int], headers: Headers = ()
) -> DecodedRecord:
    """The message in a record, with these headers as attributes of its resources. Raises `DecodeError`.

    Adds the aggregation temporalities of its sums and histograms to `temporalities`.
    """
    encoded = parse_json(MESSAGE_TYPES[signal], value).SerializeToString() if encoding == "otlp_json" else value
    seen: set[int] = set()
    items = count_encoded(signal, encoded, temporalities=seen)
    if headers:
        encoded = _with_attributes(signal, encoded, headers)
    temporalities |= seen
    return DecodedRecord(encoded, items)


def chosen_headers(headers: Headers | None, names: Sequence[str]) -> Headers:
    """The headers with these names."""
    return [one for one in headers or () if one[0] in names] if names else ()


def _with_attributes(signal: Signal, encoded: bytes, headers: Headers) -> bytes:
    attributes = [_attribute(name, value).SerializeToString() for name, value in headers]
    try:
        message: Any = thin_type(signal).FromString(encoded)
    except ProtobufDecodeError as error:
        raise DecodeError(str(error)) from error
    for resource in getattr(message, LEVELS[signal][0]):
        resource.resource.attributes.extend(attributes)
    return bytes(message.SerializeToString())


def _attribute(name: str, value: bytes | None) -> KeyValue:
    attribute = KeyValue(key=f"kafka.header.{name}")
    attribute.value.string_value = (value or b"").decode("utf-8", "replace")
    return attribute
