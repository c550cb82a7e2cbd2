"""Single fields of small protobuf messages, read and written without their classes.

https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator

_VARINT, _BYTES = 0, 2


def encode_field(number: int, value: bytes | str | int) -> bytes:
    """One field: bytes, text, or an unsigned integer."""
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value)
    encoded = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | _BYTES) + _varint(len(encoded)) + encoded


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


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


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
