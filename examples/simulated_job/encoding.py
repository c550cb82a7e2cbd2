"""OTLP messages from plain values."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.otlp.points import AttributeValue, key_values

BOUNDS = [1e-6 * 2 ** (step / 8) for step in range(200)]
"""Of histograms of durations, in s: 1 us to 31 s, 9 % apart."""
DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
Attributes = Mapping[str, AttributeValue]
NONE: Attributes = MappingProxyType({})
NumberKind = Literal["gauge", "sum", "up_down", "delta"]


@dataclass(frozen=True)
class Reading:
    """The time that points cover, in ns since 1970."""

    start_ns: int
    end_ns: int


def number(
    reading: Reading, name: str, unit: str, value: float, labels: Attributes = NONE, kind: NumberKind = "gauge"
) -> Metric:
    """A metric with one point. The start of cumulative counters is unknown, as that of a driver's counters."""
    point = NumberDataPoint(
        start_time_unix_nano=reading.start_ns if kind == "delta" else 0,
        time_unix_nano=reading.end_ns,
        attributes=key_values(labels),
    )
    if isinstance(value, int):
        point.as_int = value
    else:
        point.as_double = value
    if kind == "gauge":
        return Metric(name=name, unit=unit, gauge=Gauge(data_points=[point]))
    temporality = DELTA if kind == "delta" else CUMULATIVE
    total = Sum(data_points=[point], aggregation_temporality=temporality, is_monotonic=kind != "up_down")
    return Metric(name=name, unit=unit, sum=total)


def durations(reading: Reading, name: str, values: Iterable[float], labels: Attributes) -> Metric:
    """A histogram of durations (s) with delta temporality."""
    found = sorted(values)
    counts = [0] * (len(BOUNDS) + 1)
    for value in found:
        counts[bisect_left(BOUNDS, value)] += 1
    point = HistogramDataPoint(
        start_time_unix_nano=reading.start_ns,
        time_unix_nano=reading.end_ns,
        count=len(found),
        sum=sum(found),
        explicit_bounds=BOUNDS,
        bucket_counts=counts,
        attributes=key_values(labels),
    )
    return Metric(name=name, unit="s", histogram=Histogram(data_points=[point], aggregation_temporality=DELTA))


def of_resource(attributes: Attributes, scope: str, metrics: Iterable[Metric]) -> ResourceMetrics:
    """The metrics of a process, a host or a GPU."""
    scoped = ScopeMetrics(scope=InstrumentationScope(name=scope), metrics=metrics)
    return ResourceMetrics(resource=Resource(attributes=key_values(attributes)), scope_metrics=[scoped])
