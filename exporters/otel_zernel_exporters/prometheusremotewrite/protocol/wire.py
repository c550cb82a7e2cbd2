"""The wire format of protobuf: varints and fields as bytes.

https://protobuf.dev/programming-guides/encoding/. Fields of a message may have any order.
"""

import struct
from collections.abc import Iterable

double = struct.Struct("<d").pack
"""A double, without the key of its field."""


def varint(value: int) -> bytes:
    """A number that is not negative."""
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def zigzag(value: int) -> bytes:
    """A `sint32` or `sint64`."""
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def sized(number: int, payload: bytes) -> bytes:
    """A length-delimited field: a message, a text, or packed numbers."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def number_field(number: int, value: int) -> bytes:
    """A field of a type that is a varint, such as `int64` or an enumeration, with a value that is not negative."""
    return varint(number << 3) + varint(value)


def double_field(number: int, value: float) -> bytes:
    """A `double`."""
    return varint(number << 3 | 1) + double(value)


def packed(number: int, values: Iterable[bytes]) -> bytes:
    """A repeated field of numbers; nothing without values."""
    payload = b"".join(values)
    return sized(number, payload) if payload else b""
