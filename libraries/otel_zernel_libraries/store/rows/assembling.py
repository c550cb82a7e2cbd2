"""From rows and their series back to batches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.rows.points import Row, unsigned32, unsigned64
from otel_zernel_libraries.store.rows.tables import PointTable, TableName

AnyPoint = pb.NumberDataPoint | pb.HistogramDataPoint | pb.ExponentialHistogramDataPoint | pb.SummaryDataPoint


def fill_number(point: pb.NumberDataPoint, row: Row) -> None:
    """Sets the time and the columns of `points`."""
    _, time, value_double, value_int, start, flags = row
    _begin(point, time, start, flags)
    if value_double is not None:
        point.as_double = value_double
    elif value_int is not None:
        point.as_int = value_int


def fill_histogram(point: pb.HistogramDataPoint, row: Row) -> None:
    """Sets the time and the columns of `histograms`."""
    _totals(point, row)
    point.explicit_bounds.extend(row[8])
    point.bucket_counts.extend(map(unsigned64, row[9]))


def fill_exponential(point: pb.ExponentialHistogramDataPoint, row: Row) -> None:
    """Sets the time and the columns of `exponential_histograms`."""
    _totals(point, row)
    point.scale, point.zero_count, point.zero_threshold = row[8], unsigned64(row[9]), row[10]
    for buckets, offset, counts in ((point.positive, *row[11:13]), (point.negative, *row[13:15])):
        if offset is not None:
            buckets.SetInParent()
            buckets.offset = offset
            buckets.bucket_counts.extend(map(unsigned64, counts))


def fill_summary(point: pb.SummaryDataPoint, row: Row) -> None:
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
    point.exemplars.extend(map(pb.Exemplar.FromString, encoded))


def _begin(point: AnyPoint, time: int, start: int | None, flags: int | None) -> None:
    point.time_unix_nano = time
    if start is not None:
        point.start_time_unix_nano = unsigned64(start)
    if flags is not None:
        point.flags = unsigned32(flags)


def _totals(point: pb.HistogramDataPoint | pb.ExponentialHistogramDataPoint, row: Row) -> None:
    _, time, start, flags, count, total, least, most, *_ = row
    _begin(point, time, start, flags)
    point.count = unsigned64(count)
    if total is not None:
        point.sum = total
    if least is not None:
        point.min = least
    if most is not None:
        point.max = most


@dataclass(frozen=True, slots=True)
class EncodedSeries:
    """The exact messages of a series, as the store has them."""

    id: int
    resource_id: int
    scope_id: int
    resource: bytes
    scope: bytes
    metric: bytes


def assembled(
    table: PointTable, rows: Iterable[Row], exemplars: Iterable[Sequence[Any]], series: Mapping[int, EncodedSeries]
) -> Batch:
    """A batch of the rows of one table. A row of `exemplars` is series id, time and the encoded exemplar."""
    of_points: dict[tuple[int, int], list[bytes]] = {}
    for series_id, time, encoded in exemplars:
        of_points.setdefault((series_id, time), []).append(encoded)
    assembly = _Assembly(series)
    fill = FILL[table.name]
    for row in rows:
        point = assembly.point(row[0])
        fill(point, row)
        if of_point := of_points.get((row[0], row[1])):
            add_exemplars(point, of_point)
    return Batch(metrics=assembly.data)


class _Assembly:
    """Metrics that grow by points. Series of one metric are in one message."""

    def __init__(self, series: Mapping[int, EncodedSeries]) -> None:
        self.data = pb.MetricsData()
        self._series = series
        self._resources: dict[int, pb.ResourceMetrics] = {}
        self._scopes: dict[tuple[int, int], pb.ScopeMetrics] = {}
        self._metrics: dict[tuple[int, int, bytes], pb.Metric] = {}
        self._points: dict[int, tuple[Any, Any]] = {}
        """By series: the points of its metric, and a point with only the attributes."""

    def point(self, series_id: int) -> Any:
        """A new point of a series, with its attributes."""
        points, template = self._points.get(series_id) or self._begin(self._series[series_id])
        point = points.add()
        point.CopyFrom(template)
        return point

    def _begin(self, series: EncodedSeries) -> tuple[Any, Any]:
        metric = pb.Metric.FromString(series.metric)
        type_ = str(metric.WhichOneof("data"))
        template = getattr(metric, type_).data_points.pop()
        key = (series.resource_id, series.scope_id, metric.SerializeToString(deterministic=True))
        if key not in self._metrics:
            self._metrics[key] = self._scope(series).metrics.add()
            self._metrics[key].CopyFrom(metric)
        points = getattr(self._metrics[key], type_).data_points
        self._points[series.id] = points, template
        return points, template

    def _scope(self, series: EncodedSeries) -> pb.ScopeMetrics:
        key = (series.resource_id, series.scope_id)
        if key not in self._scopes:
            self._scopes[key] = self._resource(series).scope_metrics.add()
            self._scopes[key].MergeFromString(series.scope)
        return self._scopes[key]

    def _resource(self, series: EncodedSeries) -> pb.ResourceMetrics:
        if series.resource_id not in self._resources:
            added = self.data.resource_metrics.add()
            added.MergeFromString(series.resource)
            self._resources[series.resource_id] = added
        return self._resources[series.resource_id]
