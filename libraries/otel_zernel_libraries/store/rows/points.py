"""Data points of OTLP as tuples of the columns of their tables, without the key."""

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    NumberDataPoint,
    SummaryDataPoint,
)

_HALF_64: Final = 1 << 63
_ALL_64: Final = 1 << 64
_HALF_32: Final = 1 << 31
_ALL_32: Final = 1 << 32
LATEST_TIME: Final = 9_200_000_000 * 10**9
"""The last time that a store accepts, in ns: in July 2261. 64 bits with a sign end in April 2262, and the partition
of a time must end before."""


def signed64(number: int) -> int:
    """The signed number with the same 64 bits."""
    return number if number < _HALF_64 else number - _ALL_64


def unsigned64(number: int) -> int:
    """The unsigned number with the same 64 bits."""
    return number if number >= 0 else number + _ALL_64


def signed32(number: int) -> int:
    """The signed number with the same 32 bits."""
    return number if number < _HALF_32 else number - _ALL_32


def unsigned32(number: int) -> int:
    """The unsigned number with the same 32 bits."""
    return number if number >= 0 else number + _ALL_32


def all_signed64(numbers: Iterable[int]) -> list[int]:
    """A list of signed numbers. Counts over 2^63 are very rare."""
    unsigned = list(numbers)
    return unsigned if not unsigned or max(unsigned) < _HALF_64 else list(map(signed64, unsigned))


Row = tuple[Any, ...]
_MOST_EXEMPLARS: Final = 1 << 15
"""Exemplars of a point that are stored at most: `position` is a 16-bit number."""


def number_row(point: NumberDataPoint) -> Row:
    """The columns of `points`: no value at all is a point with NO_RECORDED_VALUE."""
    start, flags = point.start_time_unix_nano, point.flags
    if value := point.as_double:  # nearly always: the question for the kind costs as much as all the rest
        return value, None, signed64(start) if start else None, signed32(flags) if flags else None
    kind = point.WhichOneof("value")
    return (
        value if kind == "as_double" else None,
        point.as_int if kind == "as_int" else None,
        *_begin(start, flags),
    )


def histogram_row(point: HistogramDataPoint) -> Row:
    """The columns of `histograms`."""
    return (*_totals(point), list(point.explicit_bounds), all_signed64(point.bucket_counts))


def exponential_row(point: ExponentialHistogramDataPoint) -> Row:
    """The columns of `exponential_histograms`. The offset and the counts of missing buckets are None."""
    return (
        *_totals(point),
        point.scale,
        signed64(point.zero_count),
        point.zero_threshold,
        *_buckets(point.positive if point.HasField("positive") else None),
        *_buckets(point.negative if point.HasField("negative") else None),
    )


def summary_row(point: SummaryDataPoint) -> Row:
    """The columns of `summaries`."""
    return (
        *_begin(point.start_time_unix_nano, point.flags),
        signed64(point.count),
        point.sum,
        [pair.quantile for pair in point.quantile_values],
        [pair.value for pair in point.quantile_values],
    )


def exemplar_rows(exemplars: Iterable[Exemplar]) -> list[Row]:
    """The columns of `exemplars`, with their positions."""
    return [
        _exemplar_row(position, exemplar) for position, exemplar in zip(range(_MOST_EXEMPLARS), exemplars, strict=False)
    ]


def _exemplar_row(position: int, exemplar: Exemplar) -> Row:
    kind = exemplar.WhichOneof("value")
    return (
        position,
        min(exemplar.time_unix_nano, LATEST_TIME),
        exemplar.as_double if kind == "as_double" else None,
        exemplar.as_int if kind == "as_int" else None,
        exemplar.trace_id or None,
        exemplar.span_id or None,
        exemplar.SerializeToString(),
    )


def _begin(start: int, flags: int) -> tuple[int | None, int | None]:
    """The start in ns and the flags. 0 is None, which takes no room."""
    return signed64(start) if start else None, signed32(flags) if flags else None


def _totals(point: HistogramDataPoint | ExponentialHistogramDataPoint) -> Row:
    return (
        *_begin(point.start_time_unix_nano, point.flags),
        signed64(point.count),
        point.sum if point.HasField("sum") else None,
        point.min if point.HasField("min") else None,
        point.max if point.HasField("max") else None,
    )


def _buckets(buckets: ExponentialHistogramDataPoint.Buckets | None) -> tuple[int | None, list[int] | None]:
    return (None, None) if buckets is None else (buckets.offset, all_signed64(buckets.bucket_counts))


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
