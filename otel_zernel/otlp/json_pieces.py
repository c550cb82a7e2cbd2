"""Decodes a long OTLP/JSON document item by item, so that a thread that does it lets others run in between."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from otel_zernel.errors import DecodeError
from otel_zernel.otlp import json_decoding as decoding
from otel_zernel.otlp.json_reading import JsonReader, text_of

PIECE: Final = 256 << 10
"""Bytes of a document that is decoded at once."""
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape sequence of JSON. A surrogate without the other half of its pair is `lone`."""
_CONTAINERS: Final = frozenset({"resource_metrics", "scope_metrics", "metrics", "resource_spans", "scope_spans"}) | {
    *("resource_logs", "scope_logs", "gauge", "sum", "histogram", "exponential_histogram", "summary"),
    *("resource_profiles", "scope_profiles", "profiles", "dictionary"),
}
"""The fields of messages that are read field by field."""
_ITEMS: Final = frozenset({"data_points", "spans", "log_records", "samples"}) | {
    *("mapping_table", "location_table", "function_table", "link_table", "attribute_table", "stack_table")
}
"""The fields whose elements are read at once."""


def parse_json(type_: type[decoding.Data], document: bytes | str) -> decoding.Data:
    """The message of this type in one JSON document; unknown fields are ignored. Raises `DecodeError`.

    Values of more than 256 KiB, such as an attribute, may have 200,000 values inside together.
    Bytes that are not UTF-8 and lone surrogates, which UTF-8 does not have, become U+FFFD.
    """
    try:
        return _decode(type_, document)
    except DecodeError as error:
        if not isinstance(error.__cause__, UnicodeError):
            raise
    text = document if isinstance(document, str) else document.decode(errors="replace")
    return _decode(type_, _ESCAPE.sub(lambda match: r"\ufffd" if match["lone"] else match[0], text))


def _decode(type_: type[decoding.Data], document: bytes | str) -> decoding.Data:
    if len(document) <= PIECE:
        return decoding.decode_json(type_, document)
    decoding.check_density(document.encode() if isinstance(document, str) else document)
    message = type_()
    try:
        reader = JsonReader(text_of(document))
        read_message(reader, message)
        reader.end()
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DecodeError(f"not valid OTLP/JSON: {error}") from error
    return message


def read_message(reader: JsonReader, message: Any) -> None:
    """Reads an object into a message. Raises `ValueError`, `TypeError` or `OverflowError`."""
    if reader.peek() != "{":
        decoding.object_of(reader.value())
    fields = _fields(message.DESCRIPTOR)
    values: dict[str, Any] = {}
    for key in reader.properties():
        field = fields.get(key)
        if field is None:
            reader.value()
        elif field.read:
            message.ClearField(field.name)
            if reader.peek() != "n" or reader.value() is not None:
                field.read(reader, message)
        elif (value := reader.value()) is not None:
            values[field.name] = field.convert(value)
        else:
            values.pop(field.name, None)
    message.MergeFrom(type(message)(**values))


class _Field(NamedTuple):
    name: str
    convert: Callable[[Any], Any]
    """Converts a value that is read at once."""
    read: Callable[[JsonReader, Any], None] | None
    """Reads other values into the message."""


@cache
def _fields(message: Descriptor) -> Mapping[str, _Field]:
    """The fields of a message by their names in JSON."""
    return {
        field.json_name: _Field(field.name, decoding.converter_of(field, decoding.CONVERTERS), _read_function(field))
        for field in message.fields
    }


def _read_function(field: FieldDescriptor) -> Callable[[JsonReader, Any], None] | None:
    if field.name in _ITEMS:
        return _items(field.name, decoding.single_converter(field, decoding.CONVERTERS))
    if field.name not in _CONTAINERS:
        return None
    return _containers(field.name) if field.is_repeated else _container(field.name)


def _items(name: str, convert: Callable[[Any], dict[str, Any]]) -> Callable[[JsonReader, Any], None]:
    def read(reader: JsonReader, message: Any) -> None:
        items = getattr(message, name)
        _check_array(reader)
        for _ in reader.elements():
            items.add(**convert(reader.value()))

    return read


def _containers(name: str) -> Callable[[JsonReader, Any], None]:
    def read(reader: JsonReader, message: Any) -> None:
        containers = getattr(message, name)
        _check_array(reader)
        for _ in reader.elements():
            read_message(reader, containers.add())

    return read


def _container(name: str) -> Callable[[JsonReader, Any], None]:
    def read(reader: JsonReader, message: Any) -> None:
        container = getattr(message, name)
        container.SetInParent()
        read_message(reader, container)

    return read


def _check_array(reader: JsonReader) -> None:
    if reader.peek() != "[":
        decoding.list_of(reader.value())
