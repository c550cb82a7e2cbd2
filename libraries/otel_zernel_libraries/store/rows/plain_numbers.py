"""Number points read from their bytes, without their attributes: a known series costs a fifth of the time."""

from struct import Struct
from typing import Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint

from otel_zernel_libraries.store.rows.points import Row

# The fields in their order on the wire, each a tag and 8 bytes. Exemplars would follow, then attributes, then flags.
_HAS_START: Final = b"\x11"
_TIME_AND_DOUBLE: Final = b"\x19\x21"
_TIME_AND_INT: Final = b"\x19\x31"
_FIELD: Final = 9
_ATTRIBUTES: Final = b"\x3a"

_start = Struct("<xq").unpack_from
_double = Struct("<xQxd").unpack_from
_int = Struct("<xQxq").unpack_from


def plain_number(encoded: bytes) -> tuple[bytes, int, Row] | None:
    """The rest of the bytes after the value, the time in ns, and the columns of `points`. None if it is another point.

    The rest identifies the series among those of a metric, if it `has_only_attributes`.
    """
    begin = _FIELD if encoded[:1] == _HAS_START else 0
    end = begin + 2 * _FIELD
    rest, tags = encoded[end:], encoded[begin:end:_FIELD]
    if rest and rest[:1] != _ATTRIBUTES:
        return None
    start = _start(encoded)[0] if begin else None
    if tags == _TIME_AND_DOUBLE:
        time, double = _double(encoded, begin)
        return rest, time, (double, None, start, None)
    if tags == _TIME_AND_INT:
        time, whole = _int(encoded, begin)
        return rest, time, (None, whole, start, None)
    return None


def has_only_attributes(point: NumberDataPoint, rest: bytes) -> bool:
    """Whether the rest of a plain number has nothing but its attributes, in the order of other points."""
    return rest == NumberDataPoint(attributes=point.attributes).SerializeToString()
