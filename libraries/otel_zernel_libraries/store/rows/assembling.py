"""From rows and their series back to batches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.rows.points import Row
from otel_zernel_libraries.store.rows.restoring import FILL, add_exemplars
from otel_zernel_libraries.store.rows.tables import PointTable


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
        if found := of_points.get((row[0], row[1])):
            add_exemplars(point, found)
    return Batch(metrics=assembly.data)


class _Assembly:
    """Metrics that grow by points. Series of one metric are in one message."""

    def __init__(self, series: Mapping[int, EncodedSeries]) -> None:
        self.data = MetricsData()
        self._series = series
        self._resources: dict[int, ResourceMetrics] = {}
        self._scopes: dict[tuple[int, int], ScopeMetrics] = {}
        self._metrics: dict[tuple[int, int, bytes], Metric] = {}
        self._points: dict[int, tuple[Any, Any]] = {}
        """By series: the points of its metric, and a point with only the attributes."""

    def point(self, series_id: int) -> Any:
        """A new point of a series, with its attributes."""
        points, template = self._points.get(series_id) or self._begin(self._series[series_id])
        point = points.add()
        point.CopyFrom(template)
        return point

    def _begin(self, series: EncodedSeries) -> tuple[Any, Any]:
        metric = Metric.FromString(series.metric)
        type_ = str(metric.WhichOneof("data"))
        template = getattr(metric, type_).data_points.pop()
        key = (series.resource_id, series.scope_id, metric.SerializeToString(deterministic=True))
        if key not in self._metrics:
            self._metrics[key] = self._scope(series).metrics.add()
            self._metrics[key].CopyFrom(metric)
        points = getattr(self._metrics[key], type_).data_points
        self._points[series.id] = points, template
        return points, template

    def _scope(self, series: EncodedSeries) -> ScopeMetrics:
        key = (series.resource_id, series.scope_id)
        if key not in self._scopes:
            self._scopes[key] = self._resource(series).scope_metrics.add()
            self._scopes[key].MergeFromString(series.scope)
        return self._scopes[key]

    def _resource(self, series: EncodedSeries) -> ResourceMetrics:
        if series.resource_id not in self._resources:
            added = self.data.resource_metrics.add()
            added.MergeFromString(series.resource)
            self._resources[series.resource_id] = added
        return self._resources[series.resource_id]
