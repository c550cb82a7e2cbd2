"""The metrics of a process, as OTLP messages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel import __version__
from otel_zernel.otlp.points import AttributeValue, key_values

SCOPE = InstrumentationScope(name="otel_zernel_processors.phases", version=__version__)

Labels = Mapping[str, AttributeValue]
Value = tuple[Labels, float]

_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


class Writer:
    """Makes the metrics of one resource and one moment. `common` are attributes that every point has."""

    def __init__(self, common: Labels, start_ns: int, now_ns: int) -> None:
        self._common = common
        self._start_ns = start_ns
        self._now_ns = now_ns
        self.metrics: list[Metric] = []

    def sum(self, name: str, unit: str, values: Iterable[Value]) -> None:
        """A cumulative, monotonic sum."""
        metric = Metric(name=name, unit=unit)
        metric.sum.aggregation_temporality, metric.sum.is_monotonic = _CUMULATIVE, True
        metric.sum.data_points.extend(self._points(values, self._start_ns))
        self._keep(metric, len(metric.sum.data_points))

    def gauge(self, name: str, unit: str, values: Iterable[Value]) -> None:
        """A gauge."""
        metric = Metric(name=name, unit=unit)
        metric.gauge.data_points.extend(self._points(values, 0))
        self._keep(metric, len(metric.gauge.data_points))

    def histogram(self, metric: Metric) -> None:
        """A histogram made elsewhere."""
        self._keep(metric, len(metric.histogram.data_points))

    def data(self, resource: Resource) -> MetricsData:
        """All of them."""
        return data_of(resource, self.metrics)

    def _points(self, values: Iterable[Value], start_ns: int) -> Iterator[NumberDataPoint]:
        for labels, value in values:
            attributes = key_values({**self._common, **labels})
            point = NumberDataPoint(attributes=attributes, start_time_unix_nano=start_ns, time_unix_nano=self._now_ns)
            if isinstance(value, int):
                point.as_int = value
            else:
                point.as_double = value
            yield point

    def _keep(self, metric: Metric, points: int) -> None:
        if points:
            self.metrics.append(metric)


def data_of(resource: Resource, metrics: Iterable[Metric]) -> MetricsData:
    """Metrics of one resource."""
    scope = ScopeMetrics(scope=SCOPE, metrics=metrics)
    return MetricsData(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])])


def state_set(key: str, states: Sequence[str], current: str) -> list[Value]:
    """One point for each state: 1 for the current one, 0 for the others."""
    return [({key: state}, int(state == current)) for state in states]
