"""Parses a large encoded message in pieces, so that a thread that does it lets others run in between.

Parsing holds Python's lock: 1 ms for 1,000 data points with 8 attributes.
"""

import logging
import time
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message

from otel_zernel.batch.mending import mended
from otel_zernel.batch.pieces import read_field
from otel_zernel.errors import DecodeError
from otel_zernel.repeated import Repeated, more

LARGE: Final = 1 << 20
"""Bytes of a message that is parsed in pieces. Finding the pieces makes the parse a half dearer."""
PIECE: Final = 256 << 10
"""Bytes of a piece, which takes about 1 ms."""

M = TypeVar("M", bound=Message)
_logger = logging.getLogger("otel_zernel.batch")
_repeated = Repeated(time.monotonic)


def parse(type_: type[M], encoded: bytes, large: int = LARGE, piece: int = PIECE) -> M:
    """The message, without the mistakes that the check on receipt does not see. Raises `DecodeError`."""
    try:
        return _parse(type_, encoded, large, piece)
    except (DecodeError, ProtobufDecodeError) as error:
        message = type_.FromString(mended(type_.DESCRIPTOR, encoded))
        if due := _repeated.add():
            _logger.warning(
                "Received a text that is not UTF-8, a value that is nested too deeply, or a damaged attribute; it is "
                "replaced where it cannot be passed on: %s%s",
                error,
                more(due),
            )
        return message


def _parse(type_: type[M], encoded: bytes, large: int, piece: int) -> M:
    if len(encoded) <= large:
        return type_.FromString(encoded)
    message = type_()
    _merge(message, encoded, 0, len(encoded), piece)
    return message


def _merge(message: Any, data: bytes, start: int, end: int, piece: int) -> None:
    """Adds the fields at `data[start:end]`: rows of at most a piece, and larger messages field by field."""
    begin = position = start
    while position < end:
        key, content, after = read_field(data, position, end)
        if after - begin > piece:
            message.MergeFromString(data[begin:position])
            begin = position
        if after - position > piece and (inner := _inner(message, key)) is not None:
            _merge(inner, data, content, after, piece)
            begin = after
        position = after
    message.MergeFromString(data[begin:end])


def _inner(message: Any, key: int) -> Any:
    """The message in a field, to which the field's content is to be added. None if the field has no message."""
    field = message.DESCRIPTOR.fields_by_number.get(key >> 3)
    if field is None or field.message_type is None or key & 7 != 2:
        return None
    value = getattr(message, field.name)
    if field.is_repeated:
        return value.add()
    value.SetInParent()
    return value
