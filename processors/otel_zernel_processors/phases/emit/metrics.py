"""Builds metrics as OTLP messages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from opentelemetry.metrics import Counter
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
from otel_zernel.component import Context
from otel_zernel.otlp.points import AttributeValue, key_values
from otel_zernel_libraries.training.step_spans import SCOPE_NAME
from otel_zernel_processors.phases.emit.declared import METRICS, STACKS_WITHOUT_STEP

SCOPE = InstrumentationScope(name=SCOPE_NAME, version=__version__)

Labels = Mapping[str, AttributeValue]
"""Attributes of a point."""
Value = tuple[Labels, float]
"""The attributes of a point besides the common ones, and its value."""

_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def stacks_without_step(context: Context) -> Counter:
    """Counts stacks without a known position. Each job has some at its start, so they are no loss."""
    return context.meter.create_counter(*STACKS_WITHOUT_STEP.counter)


class MetricWriter:
    """Builds the metrics of one resource at one time. A metric without points is skipped."""

    def __init__(self, common: Labels, start_ns: int, now_ns: int) -> None:
        """`common` are attributes of every point. Cumulative sums start at `start_ns`."""
        self._common = common
        self._start_ns = start_ns
        self._now_ns = now_ns
        self.metrics: list[Metric] = []

    def add(self, name: str, values: Iterable[Value]) -> None:
        """Adds a metric as it is declared: a gauge, or a cumulative, monotonic sum."""
        declared = METRICS[name]
        metric = Metric(name=name, unit=declared.unit, description=declared.description)
        if declared.kind == "sum":
            metric.sum.aggregation_temporality, metric.sum.is_monotonic = _CUMULATIVE, True
            metric.sum.data_points.extend(self._points(values, self._start_ns))
        else:
            metric.gauge.data_points.extend(self._points(values, 0))
        if metric.sum.data_points or metric.gauge.data_points:
            self.metrics.append(metric)

    def _points(self, values: Iterable[Value], start_ns: int) -> Iterator[NumberDataPoint]:
        for labels, value in values:
            attributes = key_values({**self._common, **labels})
            point = NumberDataPoint(attributes=attributes, start_time_unix_nano=start_ns, time_unix_nano=self._now_ns)
            if isinstance(value, int):
                point.as_int = value
            else:
                point.as_double = value
            yield point


def metrics_data(resource: Resource, metrics: Iterable[Metric]) -> MetricsData:
    """Metrics of one resource as a message."""
    scope = ScopeMetrics(scope=SCOPE, metrics=metrics)
    return MetricsData(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])])


def state_set(key: str, states: Sequence[str], current: str) -> list[Value]:
    """One point for each state: 1 for the current one, 0 for the others."""
    return [({key: state}, int(state == current)) for state in states]
