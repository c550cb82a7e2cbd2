"""Mends encoded messages that the check on receipt accepts and a full parse refuses.

The check does not look into attributes, events, links, exemplars and log bodies. The sender has its answer already, so
everything that can be read must arrive: bytes that are not UTF-8 become U+FFFD, a value that is nested too deeply
becomes a text, and a damaged part ends where the damage begins.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from otel_zernel.batch.pieces import CONTAINER_LEVELS, PIECE, message_type
from otel_zernel.batch.thin import OPAQUE
from otel_zernel.errors import DecodeError
from otel_zernel.protobuf import encode_field, read_field

DEEPEST: Final = 80
"""Messages inside each other. Protobuf reads 100, and a part may be read by itself and put into a message later."""
TOO_DEEP: Final = f"nested more than {DEEPEST} levels deep"
"""The text in place of a value that is nested too deeply."""
_FEW_STEPS: Final = 100_000
"""Fields that are looked at in any message, besides one for `_LEAST_FIELD` bytes. Each takes some us."""
_LEAST_FIELD: Final = 4
_MOST_PARSED: Final = 4
"""Bytes that the search for sound parts may parse, in sizes of the message. Beyond them, each field is looked at."""
_SMALL: Final = 200
"""Bytes of parts that are remembered."""
_MOST_KNOWN: Final = 10_000
_WALKED: Final = 1024
"""Bytes of a row of fields that is walked through at once. To find its sound part would take longer."""
_Place = tuple[int, int, int, int]
"""The key of a field, and where the field, its content and the next field begin."""
_Descriptor = Any
"""`google.protobuf.descriptor.Descriptor`, or that of the parser in C."""


def mended(type_: _Descriptor, encoded: bytes) -> bytes:
    """The encoding of a message without the mistakes. `encoded` itself if it has none.

    Raises `DecodeError` if a mistake is outside the parts that the check leaves out, or if there are too many.
    """
    for ends_early in (True, False):
        if is_sound(type_, encoded):
            return encoded
        encoded = _Mending(len(encoded), ends_early).message(type_, encoded, 0, is_opaque=False)
    if is_sound(type_, encoded):
        return encoded
    raise DecodeError(f"Error parsing message of the type {type_.full_name}")


def is_sound(type_: _Descriptor, encoded: bytes) -> bool:
    """Whether a full parse accepts the message. Parses it in pieces, so that a thread lets others run in between."""
    class_ = GetMessageClass(type_)
    try:
        for piece in _pieces(type_, encoded, 0, len(encoded), ()):
            class_.FromString(piece)
    except (DecodeError, ProtobufDecodeError):
        return False
    return True


def _pieces(type_: _Descriptor, data: bytes, start: int, end: int, path: tuple[int, ...]) -> Iterator[bytes]:
    """The message in pieces of about `PIECE` bytes, each inside the fields `path`: it is nested as deeply as before."""
    if end - start <= PIECE and not path:
        yield data
        return
    begin = position = start
    while position < end:
        key, content, after = read_field(data, position, end)
        inner = message_type(type_, key) if after - position > PIECE and len(path) < CONTAINER_LEVELS else None
        if inner is not None or after - begin > PIECE:
            yield _wrapped(data[begin:position], path)
            begin = position
        if inner is not None:
            yield from _pieces(inner, data, content, after, (*path, key >> 3))
            begin = after
        position = after
    yield _wrapped(data[begin:end], path)


def _wrapped(encoded: bytes, path: tuple[int, ...]) -> bytes:
    for number in reversed(path):
        encoded = encode_field(number, encoded)
    return encoded


class _Mending:
    """One walk over a message. It bounds the work, since a hostile sender chooses the mistakes."""

    def __init__(self, size: int, ends_early: bool) -> None:
        """`ends_early`: does not walk into parts that are sound by themselves. Together they may be too deep."""
        self._ends_early = ends_early
        self._steps = _FEW_STEPS + size // _LEAST_FIELD
        self.left_to_parse = _MOST_PARSED * size
        self._known: dict[tuple[str, int, bytes], bytes] = {}
        """Small mended parts. Many points have the same attributes."""

    def message(self, type_: _Descriptor, data: bytes, depth: int, *, is_opaque: bool) -> bytes:
        """The message in `data`, which has a mistake. Damage in an opaque part ends it."""
        fields: list[_Place] = []
        position = 0
        while position < len(data):
            self._steps -= 1
            if self._steps < 0:
                raise DecodeError("too many damaged parts")
            try:
                key, content, after = read_field(data, position, len(data))
                if not key >> 3:
                    raise DecodeError("a field has the number 0")
            except DecodeError:
                if not is_opaque:
                    raise
                break
            fields.append((key, position, content, after))
            position = after
        mended: list[bytes] = []
        self._mend_row(type_, data, fields, depth, is_opaque, mended, is_bad=True)
        return b"".join(mended)

    def _mend_row(
        self,
        type_: _Descriptor,
        data: bytes,
        fields: Sequence[_Place],
        depth: int,
        is_opaque: bool,
        mended: list[bytes],
        *,
        is_bad: bool,
    ) -> bool:
        """Adds the fields to `mended`. Returns whether they had no mistake, as far as that is known.

        Finds the sound ones by halving: a row of fields is an encoded message of this type.
        """
        if not fields:
            return True
        start, end = fields[0][1], fields[-1][3]
        is_searched = self._ends_early and self.left_to_parse >= end - start
        if is_searched and not is_bad and end - start > _WALKED:
            self.left_to_parse -= end - start
            if is_sound(type_, data[start:end]):
                mended.append(data[start:end])
                return True
        if not is_searched or end - start <= _WALKED or len(fields) == 1:
            walked = b"".join([self._field(type_, data, field, depth, is_opaque) for field in fields])
            mended.append(walked)
            return walked == data[start:end]
        middle = len(fields) // 2
        is_first_sound = self._mend_row(type_, data, fields[:middle], depth, is_opaque, mended, is_bad=False)
        self._mend_row(type_, data, fields[middle:], depth, is_opaque, mended, is_bad=is_first_sound)
        return False

    def _field(self, type_: _Descriptor, data: bytes, place: _Place, depth: int, is_opaque: bool) -> bytes:
        """The field at a place of `data`, mended if it is a text or a message."""
        key, start, begin, end = place
        field = type_.fields_by_number.get(key >> 3)
        if field is None or key & 7 != 2:
            return data[start:end]
        if field.type == field.TYPE_STRING:
            content = data[begin:end]
            mended = content.decode(errors="replace").encode()
        elif field.message_type is not None:
            content = data[begin:end]
            mended = self._inner(field, content, depth, is_opaque)
        else:
            return data[start:end]
        return data[start:end] if mended == content else encode_field(field.number, mended)

    def _inner(self, field: Any, content: bytes, depth: int, is_opaque: bool) -> bytes:
        type_, begins_opaque = field.message_type, field.name in OPAQUE and not is_opaque
        if depth >= DEEPEST and type_.name == AnyValue.DESCRIPTOR.name:
            return AnyValue(string_value=TOO_DEEP).SerializeToString()
        known = self._known.get((type_.name, depth, content)) if len(content) <= _SMALL else None
        if known is None:
            known = self.message(type_, content, depth + 1, is_opaque=is_opaque or begins_opaque)
            if begins_opaque and not is_sound(type_, known):  # numbers that are out of range
                known = b""
            if len(content) <= _SMALL and len(self._known) < _MOST_KNOWN:
                self._known[type_.name, depth, content] = known
        return known
