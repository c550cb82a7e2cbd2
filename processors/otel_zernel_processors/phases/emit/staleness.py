"""The series that were told of a process, so that they can be ended: whoever shows them may then let go."""

from collections.abc import Sequence
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import points
from otel_zernel.otlp.staleness import staleness_metric
from otel_zernel_processors.phases.emit.metrics import data_of


class Told:
    """What was told of one process, by name and attributes, and how each of it is ended."""

    def __init__(self) -> None:
        self.resource = Resource()
        """Under which it was told."""
        self._ends: dict[tuple[str, bytes], Metric] = {}

    def tell(self, resource: Resource, metrics: Sequence[Metric], now_ns: int) -> MetricsData:
        """The ends of what is told no more, now that these metrics are: all of it if the resource has become another,
        as when a rank becomes known. A histogram is not ended by having counted nothing."""
        told = {(metric.name, _attributes(point)): (metric, point) for metric in metrics for point in points(metric)}
        same = resource == self.resource
        gone = [
            key for key, end in self._ends.items() if not same or (key not in told and not end.HasField("histogram"))
        ]
        ends = data_of(self.resource, [self._end(key, now_ns) for key in gone])
        self.resource = resource
        for key, (metric, point) in told.items():
            if key not in self._ends:
                self._ends[key] = staleness_metric(metric, point)
        return ends

    def end(self, now_ns: int) -> MetricsData:
        """The ends of everything."""
        return data_of(self.resource, [self._end(key, now_ns) for key in list(self._ends)])

    def _end(self, key: tuple[str, bytes], now_ns: int) -> Metric:
        end = self._ends.pop(key)
        for point in points(end):
            point.time_unix_nano = now_ns
        return end


def _attributes(point: Any) -> bytes:
    return b"".join(pair.SerializeToString() for pair in point.attributes)
