"""From rows back to data points, the reverse of `points`."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    NumberDataPoint,
    SummaryDataPoint,
)

from otel_zernel_libraries.store.rows.integers import unsigned32, unsigned64
from otel_zernel_libraries.store.rows.points import Row
from otel_zernel_libraries.store.rows.tables import TableName

AnyPoint = NumberDataPoint | HistogramDataPoint | ExponentialHistogramDataPoint | SummaryDataPoint


def fill_number(point: NumberDataPoint, row: Row) -> None:
    """Sets the time and the columns of `points`."""
    _, time, value_double, value_int, start, flags = row
    _begin(point, time, start, flags)
    if value_double is not None:
        point.as_double = value_double
    elif value_int is not None:
        point.as_int = value_int


def fill_histogram(point: HistogramDataPoint, row: Row) -> None:
    """Sets the time and the columns of `histograms`."""
    _totals(point, row)
    point.explicit_bounds.extend(row[8])
    point.bucket_counts.extend(map(unsigned64, row[9]))


def fill_exponential(point: ExponentialHistogramDataPoint, row: Row) -> None:
    """Sets the time and the columns of `exponential_histograms`."""
    _totals(point, row)
    point.scale, point.zero_count, point.zero_threshold = row[8], unsigned64(row[9]), row[10]
    for buckets, offset, counts in ((point.positive, *row[11:13]), (point.negative, *row[13:15])):
        if offset is not None:
            buckets.SetInParent()
            buckets.offset = offset
            buckets.bucket_counts.extend(map(unsigned64, counts))


def fill_summary(point: SummaryDataPoint, row: Row) -> None:
    """Sets the time and the columns of `summaries`."""
    _, time, start, flags, count, total, quantiles, values = row
    _begin(point, time, start, flags)
    point.count, point.sum = unsigned64(count), total
    for quantile, value in zip(quantiles, values, strict=True):
        point.quantile_values.add(quantile=quantile, value=value)


FILL: Final[dict[TableName, Callable[[Any, Row], None]]] = {
    "points": fill_number,
    "histograms": fill_histogram,
    "exponential_histograms": fill_exponential,
    "summaries": fill_summary,
}


def add_exemplars(point: Any, encoded: Iterable[bytes]) -> None:
    """Appends the exemplars of a point."""
    point.exemplars.extend(map(Exemplar.FromString, encoded))


def _begin(point: AnyPoint, time: int, start: int | None, flags: int | None) -> None:
    point.time_unix_nano = time
    if start is not None:
        point.start_time_unix_nano = unsigned64(start)
    if flags is not None:
        point.flags = unsigned32(flags)


def _totals(point: HistogramDataPoint | ExponentialHistogramDataPoint, row: Row) -> None:
    _, time, start, flags, count, total, least, most, *_ = row
    _begin(point, time, start, flags)
    point.count = unsigned64(count)
    if total is not None:
        point.sum = total
    if least is not None:
        point.min = least
    if most is not None:
        point.max = most
