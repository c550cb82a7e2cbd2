"""Staleness points: they end the series of a resource, so that consumers drop the series."""

from collections.abc import Sequence
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import points
from otel_zernel.otlp.staleness import staleness_metric
from otel_zernel_processors.phases.emit.metrics import metrics_data

_SeriesKey = tuple[str, bytes]
"""The name of a metric, and the encoded attributes of a point."""


class StalenessTracker:
    """The series emitted for one resource, each with its staleness point."""

    def __init__(self) -> None:
        self.resource = Resource()
        """The resource of the latest report."""
        self._stale: dict[_SeriesKey, Metric] = {}

    def update(self, resource: Resource, metrics: Sequence[Metric], now_ns: int) -> MetricsData:
        """Records the series of a report; returns the staleness points of earlier series that it does not contain.

        If the resource has changed, as when a rank becomes known, all earlier series end. Otherwise histograms do not
        end: one without a point has only counted nothing.
        """
        series = {(metric.name, _attributes(point)): (metric, point) for metric in metrics for point in points(metric)}
        same = resource == self.resource
        gone = [
            key
            for key, stale in self._stale.items()
            if not same or (key not in series and not stale.HasField("histogram"))
        ]
        ends = metrics_data(self.resource, [self._end(key, now_ns) for key in gone])
        self.resource = resource
        for key, (metric, point) in series.items():
            if key not in self._stale:
                self._stale[key] = staleness_metric(metric, point)
        return ends

    def end_all(self, now_ns: int) -> MetricsData:
        """The staleness points of all series."""
        return metrics_data(self.resource, [self._end(key, now_ns) for key in list(self._stale)])

    def _end(self, key: _SeriesKey, now_ns: int) -> Metric:
        stale = self._stale.pop(key)
        for point in points(stale):
            point.time_unix_nano = now_ns
        return stale


def _attributes(point: Any) -> bytes:
    return b"".join(pair.SerializeToString() for pair in point.attributes)
