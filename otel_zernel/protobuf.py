"""Single fields of protobuf messages, written and read without their classes.

https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator
from contextlib import suppress

from otel_zernel.errors import DecodeError

_VARINT, _BYTES = 0, 2


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


def encode_field(number: int, value: bytes | str | int) -> bytes:
    """One field: bytes, text, or an integer that is not negative."""
    if isinstance(value, int):
        return varint(number << 3 | _VARINT) + varint(value)
    encoded = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | _BYTES) + varint(len(encoded)) + encoded


def delimited(number: int, payload: bytes) -> bytes:
    """The payload as the length-delimited field `number` (1 to 15) of the message around it."""
    size = len(payload)
    key = number << 3 | _BYTES
    if size < 0x80:
        return bytes((key, size)) + payload
    if size < 0x4000:  # most longer payloads; the speed of this function decides how fast metrics are encoded
        return bytes((key, size & 0x7F | 0x80, size >> 7)) + payload
    return prefix(number, size) + payload


def prefix(number: int, size: int) -> bytes:
    """The key and the length of a length-delimited field."""
    return varint(number << 3 | _BYTES) + varint(size)


def first_string(message: bytes, number: int) -> str:
    """The first text field with this number; empty if there is none, or if the message is damaged."""
    return next((text(value) for field, value in fields(message) if field == number), "")


def text(value: bytes) -> str:
    """The text in a field; invalid UTF-8 is replaced."""
    return value.decode(errors="replace")


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The number and the content of each field of bytes. Ends at the first damage."""
    position = 0
    with suppress(DecodeError):
        while position < len(message):
            key, content, position = read_field(message, position, len(message))
            if key & 7 == _BYTES:
                yield key >> 3, message[content:position]


def read_field(data: bytes, position: int, end: int) -> tuple[int, int, int]:
    """The key of the field at `position`, and where its content begins and ends. Raises `DecodeError`."""
    try:
        key = data[position]
        content = position + 1
        if key > 0x7F:
            key, content = _read_varint(data, position)
        match key & 7:
            case 2:
                size = data[content]
                if size > 0x7F:
                    size, content = _read_varint(data, content)
                else:
                    content += 1
                after = content + size
            case 0:
                after = _read_varint(data, content)[1]
            case 1:
                after = content + 8
            case 5:
                after = content + 4
            case _:
                raise DecodeError("the message has a group, which OTLP does not use")
    except IndexError as error:
        raise DecodeError("the message is cut off") from error
    if after > end:
        raise DecodeError("the message is cut off")
    return key, content, after


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number, and the position behind it. Raises `IndexError` at the end of the data."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise DecodeError("a number has more than 10 bytes")
