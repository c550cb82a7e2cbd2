"""Parses a large encoded message in pieces, so that a thread that does it lets others run in between.

Parsing holds Python's lock: 1 ms for 1,000 data points with 8 attributes.
"""

import logging
import time
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message

from otel_zernel.batch.mending import mended
from otel_zernel.batch.pieces import CONTAINER_LEVELS, PIECE, message_type
from otel_zernel.errors import DecodeError
from otel_zernel.protobuf import read_field
from otel_zernel.repeated import Repeated, more

LARGE: Final = 1 << 20
"""Bytes of a message that is parsed in pieces. Finding the pieces makes the parse a half dearer."""

M = TypeVar("M", bound=Message)
_logger = logging.getLogger("otel_zernel.batch")
_repeated = Repeated(time.monotonic)


def parse(type_: type[M], encoded: bytes, large: int = LARGE, piece: int = PIECE) -> M:
    """The message, without the mistakes that the check on receipt does not see. Raises `DecodeError`."""
    return parse_mended(type_, encoded, large, piece)[0]


def parse_mended(type_: type[M], encoded: bytes, large: int = LARGE, piece: int = PIECE) -> tuple[M, bytes]:
    """The message without mistakes, and its encoding. Raises `DecodeError`.

    Mending takes up to 0.5 s a MiB: read large received bytes in a thread, or after `Batch.make_readable`.
    """
    try:
        return parse_sound(type_, encoded, large, piece), encoded
    except DecodeError as error:
        encoded = mended(type_.DESCRIPTOR, encoded)
        message = parse_sound(type_, encoded, large, piece)
        if due := _repeated.add():
            _logger.warning(
                "Received a text that is not UTF-8, a value that is nested too deeply, or a damaged attribute; it is "
                "replaced where it cannot be passed on: %s%s",
                error,
                more(due),
            )
        return message, encoded


def parse_sound(type_: type[M], encoded: bytes, large: int = LARGE, piece: int = PIECE) -> M:
    """The message if it has no mistake. Raises `DecodeError`."""
    try:
        if len(encoded) <= large:
            return type_.FromString(encoded)
        message = type_()
        _merge(message, encoded, 0, len(encoded), piece)
    except ProtobufDecodeError as error:
        raise DecodeError(str(error)) from error
    return message


def _merge(message: Any, data: bytes, start: int, end: int, piece: int, levels: int = CONTAINER_LEVELS) -> None:
    """Adds the fields at `data[start:end]`: rows of at most a piece, and larger messages field by field."""
    begin = position = start
    while position < end:
        key, content, after = read_field(data, position, end)
        if after - begin > piece:
            message.MergeFromString(data[begin:position])
            begin = position
        if levels and after - position > piece and (inner := _inner(message, key)) is not None:
            _merge(inner, data, content, after, piece, levels - 1)
            begin = after
        position = after
    message.MergeFromString(data[begin:end])


def _inner(message: Any, key: int) -> Any:
    """The message in a field, to which the field's content is to be added. None if the field has no message."""
    if message_type(message.DESCRIPTOR, key) is None:
        return None
    field = message.DESCRIPTOR.fields_by_number[key >> 3]
    value = getattr(message, field.name)
    if field.is_repeated:
        return value.add()
    value.SetInParent()
    return value
