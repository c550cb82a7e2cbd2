"""Numbers in the wire format of protobuf, besides those of `otel_zernel.protobuf`."""

import struct
from collections.abc import Iterable

from otel_zernel.protobuf import encode_field, varint

double = struct.Struct("<d").pack
"""A double, without the key of its field."""


def zigzag(value: int) -> bytes:
    """A `sint32` or `sint64`."""
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def double_field(number: int, value: float) -> bytes:
    """A `double`."""
    return varint(number << 3 | 1) + double(value)


def packed(number: int, values: Iterable[bytes]) -> bytes:
    """A repeated field of numbers; nothing without values."""
    payload = b"".join(values)
    return encode_field(number, payload) if payload else b""
