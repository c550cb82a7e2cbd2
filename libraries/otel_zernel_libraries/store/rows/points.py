"""Data points of OTLP as tuples of the columns of their tables, without the key."""

from collections.abc import Iterable
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    NumberDataPoint,
    SummaryDataPoint,
)

from otel_zernel_libraries.store.rows.integers import LATEST_TIME, all_signed64, signed32, signed64

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
    return [_exemplar_row(position, one) for position, one in zip(range(_MOST_EXEMPLARS), exemplars, strict=False)]


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
