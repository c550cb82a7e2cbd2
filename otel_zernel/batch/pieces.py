"""Checks and counts a large encoded message in pieces, so that a thread that does it lets others run in between.

Parsing holds Python's lock. A message of 20 MiB of empty parts held it for 0.7 s; a piece holds it for about 10 ms. A
piece is a row of fields of one message, which is an encoded message of the same type.
"""

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from otel_zernel.batch.signals import Signal
from otel_zernel.batch.thin import EXPLICIT_HISTOGRAMS, MOST_CONTAINERS, TooManyContainers, count_at_once, thin_type
from otel_zernel.errors import DecodeError
from otel_zernel.protobuf import read_field

PIECE: Final = 256 << 10
"""Bytes of a piece, which takes about 1 ms to parse."""
CONTAINER_LEVELS: Final = 6
"""Messages around an attribute of a point: those of all points, a resource, a scope, a metric, its data, the point.
Nothing below is taken apart: a hostile value may be nested without end."""
_LEAST_FIELD: Final = 8
"""The least average of a field with its content, in bytes. A data point of two numbers has 20."""
_CHILDREN: Final = {
    "MetricsData": "resource_metrics",
    "ResourceMetrics": "scope_metrics",
    "ScopeMetrics": "metrics",
    "TracesData": "resource_spans",
    "ResourceSpans": "scope_spans",
    "LogsData": "resource_logs",
    "ResourceLogs": "scope_logs",
    "ProfilesData": "resource_profiles",
    "ResourceProfiles": "scope_profiles",
    "ScopeProfiles": "profiles",
}
"""The field of a message with the next containers."""
_ITEMS: Final = {"ScopeSpans": "spans", "ScopeLogs": "log_records", "Profile": "samples"} | dict.fromkeys(
    ("Gauge", "Sum", "Histogram", "ExponentialHistogram", "Summary"), "data_points"
)
"""The field of a message with the items."""
_Descriptor = Any
"""`google.protobuf.descriptor.Descriptor`, or that of the parser in C."""


_ADDABLE: Final = frozenset({"Sum", "Histogram", "ExponentialHistogram"})
"""The messages that have an aggregation temporality."""


def count_encoded(
    signal: Signal,
    encoded: bytes,
    piece: int = PIECE,
    *,
    temporalities: set[int] | None = None,
) -> int:
    """The number of items in an encoded message of this signal. Raises `DecodeError` if it is not valid.

    Adds the aggregation temporalities of its sums and histograms to `temporalities`; 0 may be too many, since pieces
    of a metric lack theirs.
    `piece` is in bytes. A hostile message of 20 MiB may take a second. Others can run meanwhile if it is in a thread.
    """
    if len(encoded) <= piece:
        return count_at_once(signal, encoded, temporalities=temporalities)
    counting = _Counting(piece, set() if temporalities is None else temporalities)
    return sum(counting.pieces(thin_type(signal).DESCRIPTOR, encoded, 0, len(encoded)))


class _Counting:
    """The counting of one message."""

    def __init__(self, piece: int, temporalities: set[int]) -> None:
        self._piece = piece
        self._temporalities = temporalities
        self._containers = 0

    def pieces(self, type_: _Descriptor, data: bytes, start: int, end: int) -> Iterator[int]:
        """Counts the message of this type at `data[start:end]`. Fields that are larger than a piece are taken apart."""
        begin = position = start
        fields = 0
        kinds: set[int] = set()
        most = _most_parts(self._piece)
        while position < end:
            key, content, after = read_field(data, position, end)
            if fields > most:  # no piece may have as many: the rest of it need not be read
                raise _too_many_parts(fields, position - begin)
            fields += 1
            if type_.name == "Metric":
                _add_kind(kinds, type_, key)
            child = message_type(type_, key) if after - position > self._piece else None
            if child is not None or after - begin > self._piece:
                yield self._count(type_, data[begin:position], fields - 1)
                begin, fields = position, 1
            if child is not None:
                self._add_containers(type_.name in _CHILDREN)
                yield int(_holds_item(type_, key))
                yield from self.pieces(child, data, content, after)
                begin, fields = after, 0
            elif after - begin > self._piece:  # one long field; its inside is not checked
                if not key >> 3:
                    raise DecodeError("a field has the number 0")
                begin, fields = after, 0
            position = after
        yield self._count(type_, data[begin:end], fields)

    def _count(self, type_: _Descriptor, encoded: bytes, fields: int) -> int:
        _check_average(fields, len(encoded))
        try:
            message = GetMessageClass(type_).FromString(encoded)
        except ProtobufDecodeError as error:
            raise DecodeError(str(error)) from error
        items = self._items(message)
        _check_average(items, len(encoded))
        return items

    def _items(self, message: Message) -> int:
        name = message.DESCRIPTOR.name
        if name in _ADDABLE:
            self._temporalities.add(message.aggregation_temporality)  # type: ignore[attr-defined]  # has it by its name
        if name == "Histogram":
            self._temporalities.add(EXPLICIT_HISTOGRAMS)
        if field := _ITEMS.get(name):
            return len(getattr(message, field))
        if name == "Metric":
            data = message.WhichOneof("data")
            return self._items(getattr(message, data)) if data else 0
        if not (field := _CHILDREN.get(name)):
            return 0
        children = getattr(message, field)
        self._add_containers(len(children))
        return sum(map(self._items, children))

    def _add_containers(self, number: int) -> None:
        self._containers += number
        if self._containers > MOST_CONTAINERS:
            raise TooManyContainers(MOST_CONTAINERS, self._containers)


def _check_average(parts: int, size: int) -> None:
    if parts > _most_parts(size):
        raise _too_many_parts(parts, size)


def _most_parts(size: int) -> int:
    """The parts that `size` bytes may have. A few small ones are no attack."""
    return max(size, PIECE // 16) // _LEAST_FIELD


def _too_many_parts(parts: int, size: int) -> DecodeError:
    return DecodeError(f"{parts} fields in {size} bytes: most of them are empty")


def _add_kind(kinds: set[int], type_: _Descriptor, key: int) -> None:
    """Refuses a large metric with several kinds of data: a parser keeps the last one, and pieces would count all."""
    field = type_.fields_by_number.get(key >> 3)
    if field is not None and field.containing_oneof is not None and key & 7 == 2:
        kinds.add(key >> 3)
        if len(kinds) > 1:
            raise DecodeError("a metric has several kinds of data")


def message_type(type_: _Descriptor, key: int) -> _Descriptor | None:
    """The type of the message in a field; None if there is none."""
    field = type_.fields_by_number.get(key >> 3)
    return field.message_type if field is not None and key & 7 == 2 else None


def _holds_item(type_: _Descriptor, key: int) -> bool:
    return bool(type_.fields_by_number[key >> 3].name == _ITEMS.get(type_.name))
