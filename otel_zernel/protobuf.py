"""Single fields of protobuf messages, written and read without their classes.

https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator

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
    while position < len(message):
        key, position = _read_varint(message, position)
        match key & 7:
            case 0:
                _, position = _read_varint(message, position)
            case 2:
                size, position = _read_varint(message, position)
                if position + size > len(message):
                    return
                yield key >> 3, message[position : position + size]
                position += size
            case 1:
                position += 8
            case 5:
                position += 4
            case _:
                return


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """The number, and the position behind it. A number that is cut off or too long ends the message."""
    value = 0
    for shift in range(0, 64, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 7, len(message)
