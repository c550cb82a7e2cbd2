"""OTLP metrics, encoded by hand.

Building a point with protobuf costs 5 us, most of it for attributes that never change. So the parts that do not change
are encoded once: a `Series` holds its attributes' bytes. Field numbers are
those of opentelemetry/proto/metrics/v1/metrics.proto.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel import __version__
from otel_zernel.protobuf import delimited, prefix

MetricKind = Literal["gauge", "sum", "up_down", "histogram", "exponential_histogram", "summary"]


AttributeValue = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, AttributeValue]
Temporality = Literal["cumulative", "delta"]

LARGEST_INTEGER = 2**63 - 1
"""The largest integer that OTLP can hold."""
RESOURCE_ATTRIBUTES = Resource.ATTRIBUTES_FIELD_NUMBER
NUMBER_ATTRIBUTES = NumberDataPoint.ATTRIBUTES_FIELD_NUMBER
HISTOGRAM_ATTRIBUTES = HistogramDataPoint.ATTRIBUTES_FIELD_NUMBER
"""The fields that hold the attributes of a resource, a number point and a histogram point: see `encode_attributes`."""

_DOUBLE, _INTEGER = struct.Struct("<BQBQBd"), struct.Struct("<BQBQBq")

_DATA_FIELDS: dict[MetricKind, int] = {
    "gauge": Metric.GAUGE_FIELD_NUMBER,
    "sum": Metric.SUM_FIELD_NUMBER,
    "up_down": Metric.SUM_FIELD_NUMBER,
    "histogram": Metric.HISTOGRAM_FIELD_NUMBER,
    "exponential_histogram": Metric.EXPONENTIAL_HISTOGRAM_FIELD_NUMBER,
    "summary": Metric.SUMMARY_FIELD_NUMBER,
}
_TEMPORALITIES: dict[Temporality, int] = {
    "cumulative": AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE,
    "delta": AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA,
}
_MOVING_BOUNDS = KeyValue(key="zernel.histogram.bounds", value=AnyValue(string_value="moving"))
"""The metadata of a histogram metric whose bounds differ from point to point."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Describes a metric: an OpenTelemetry name, a UCUM unit, and how its points add up.

    A `sum` is monotonic, an `up_down` is not. The temporality is that of sums and histograms; other kinds have none.
    """

    name: str
    unit: str = ""
    kind: MetricKind = "gauge"
    description: str = ""
    temporality: Temporality = "cumulative"
    moving_bounds: bool = False
    """Whether the points of a histogram have bounds only near their values, so that the bounds differ."""

    @property
    def identity(self) -> tuple[str, str, MetricKind]:
        """Name, unit and kind. Two descriptors of one metric may have different descriptions."""
        return self.name, self.unit, self.kind


@dataclass(frozen=True, slots=True)
class Scope:
    """The instrumentation scope: by convention the package that makes the points."""

    name: str
    version: str = __version__


@dataclass(frozen=True, slots=True)
class Series:
    """A series of number points: its resource, scope, metric and attributes, each encoded once."""

    resource: bytes
    """An encoded `Resource`; see `encode_resource`."""
    scope: Scope
    descriptor: Descriptor
    attributes: bytes = b""
    """Encoded attributes of a point; see `encode_point_attributes`."""


@dataclass(frozen=True, slots=True)
class Period:
    """The time that a point covers, in ns since 1970. A start of 0 means that it is not known."""

    start_ns: int
    end_ns: int


def any_value(value: AttributeValue) -> AnyValue:
    """The value as OTLP's `AnyValue`."""
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))


def key_values(attributes: Attributes) -> list[KeyValue]:
    """The attributes as OTLP's `KeyValue` messages."""
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def encode_attributes(attributes: Attributes, field: int) -> bytes:
    """The attributes as the field with the number `field` of a resource or point, ready to be joined to its others."""
    return b"".join(delimited(field, pair.SerializeToString()) for pair in key_values(attributes))


def encode_resource(attributes: Attributes) -> bytes:
    """An encoded `Resource` with these attributes."""
    return encode_attributes(attributes, RESOURCE_ATTRIBUTES)


def encode_point_attributes(attributes: Attributes) -> bytes:
    """The attributes as fields of a number point."""
    return encode_attributes(attributes, NUMBER_ATTRIBUTES)


def encode_number_point(attributes: bytes, value: float, period: Period) -> bytes:
    """One of the `data_points` of a gauge or sum. Integers stay integers; larger ones become the largest of OTLP."""
    if isinstance(value, int):
        number = _INTEGER.pack(0x11, period.start_ns, 0x19, period.end_ns, 0x31, min(value, LARGEST_INTEGER))
    else:
        number = _DOUBLE.pack(0x11, period.start_ns, 0x19, period.end_ns, 0x21, value)
    return delimited(1, attributes + number)


def has_moving_bounds(metric: Metric) -> bool:
    """Whether the sender of a histogram metric says that its bounds differ from point to point."""
    return _MOVING_BOUNDS in metric.metadata


def forget_moving_bounds(metric: Metric) -> None:
    """Removes the statement that the bounds differ."""
    if _MOVING_BOUNDS in metric.metadata:
        metric.metadata.remove(_MOVING_BOUNDS)


def encode_metric(descriptor: Descriptor, data_points: bytes) -> bytes:
    """A metric of a `ScopeMetrics`, around its encoded `data_points`."""
    head, tail = metric_around(descriptor, len(data_points))
    return head + data_points + tail


@lru_cache(maxsize=4096)
def metric_around(descriptor: Descriptor, size: int) -> tuple[bytes, bytes]:
    """The parts of an encoded metric before and after `size` bytes of points. Most metrics have few sizes."""
    texts = (descriptor.name, descriptor.description, descriptor.unit)
    header = b"".join(delimited(number, text.encode()) for number, text in enumerate(texts, 1) if text or number == 1)
    if descriptor.moving_bounds:
        header += delimited(Metric.METADATA_FIELD_NUMBER, _MOVING_BOUNDS.SerializeToString())
    tail = _after_points(descriptor)
    data = prefix(_DATA_FIELDS[descriptor.kind], size + len(tail))
    return prefix(2, len(header) + len(data) + size + len(tail)) + header + data, tail


def _after_points(descriptor: Descriptor) -> bytes:
    """The fields that follow the points: the temporality and whether a sum is monotonic."""
    temporality = bytes((Sum.AGGREGATION_TEMPORALITY_FIELD_NUMBER << 3, _TEMPORALITIES[descriptor.temporality]))
    match descriptor.kind:
        case "gauge" | "summary":
            return b""
        case "sum":
            return temporality + bytes((Sum.IS_MONOTONIC_FIELD_NUMBER << 3, 1))
        case "up_down" | "histogram" | "exponential_histogram":
            return temporality


def encode_resource_metrics(resource: bytes, scope: Scope, metrics: Iterable[bytes]) -> bytes:
    """A `ResourceMetrics` of a `MetricsData`, around its encoded metrics."""
    return delimited(1, delimited(1, resource) + delimited(2, _scope_header(scope) + b"".join(metrics)))


@lru_cache(maxsize=128)
def _scope_header(scope: Scope) -> bytes:
    return delimited(1, InstrumentationScope(name=scope.name, version=scope.version).SerializeToString())
