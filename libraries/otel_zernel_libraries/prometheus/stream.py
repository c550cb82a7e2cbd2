"""Metric streams: the points of one metric from one origin, and the keys that identify their series."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, NumberDataPoint

from otel_zernel_libraries.prometheus.names import Naming
from otel_zernel_libraries.prometheus.origin import Origin
from otel_zernel_libraries.prometheus.series import (
    CounterSeries,
    ExplicitHistogramSeries,
    ExponentialHistogramSeries,
    ExposedSeries,
    NumberSeries,
    SeriesByKey,
    SummarySeries,
)

FamilyType = Literal["gauge", "counter", "histogram", "summary"]
StreamKey = tuple[str, str, str, bool, int]
"""The kind of point (`sum`), the metric's name, its unit, whether it is monotonic, and its temporality."""

_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
_UNSPECIFIED = AggregationTemporality.AGGREGATION_TEMPORALITY_UNSPECIFIED
_TYPES: dict[str, tuple[FamilyType, type[ExposedSeries]]] = {
    "gauge": ("gauge", NumberSeries),
    "histogram": ("histogram", ExplicitHistogramSeries),
    "exponential_histogram": ("histogram", ExponentialHistogramSeries),
    "summary": ("summary", SummarySeries),
}
_VARIABLE_FIELDS = re.compile(rb"(?:\x11.{8})?(?:\x19.{8})?(?:\x21.{8})?(?:\x31.{8})?", re.DOTALL)
"""The fields of an encoded number point that differ between two points of a series: start_time_unix_nano (2),
time_unix_nano (3), as_double (4) and as_int (6). protobuf writes them before the attributes (7)."""
_ATTRIBUTES_TAG = 7 << 3 | 2
"""The tag of `attributes` in an encoded number point: field 7, length-delimited."""


def attributes_key(attributes: Iterable[KeyValue]) -> bytes:
    """The attributes as an encoded number point that has no other field."""
    return NumberDataPoint(attributes=attributes).SerializeToString()


def number_key(point: NumberDataPoint) -> bytes:
    """The same key for a number point, without parsing its attributes: the encoded point after its variable fields."""
    if point.flags:  # protobuf writes them after the attributes
        return attributes_key(point.attributes)
    encoded = point.SerializeToString()
    match = _VARIABLE_FIELDS.match(encoded)
    key = encoded[match.end() :] if match else encoded
    return key if not key or key[0] == _ATTRIBUTES_TAG else attributes_key(point.attributes)


def stream_key(metric: Metric, kind: str, data: Any) -> StreamKey:
    """Identifies a stream among the streams of one origin."""
    if kind == "sum":
        return kind, metric.name, metric.unit, data.is_monotonic, data.aggregation_temporality
    temporality = data.aggregation_temporality if kind.endswith("histogram") else _CUMULATIVE
    return kind, metric.name, metric.unit, False, temporality


@dataclass(slots=True, eq=False)
class MetricStream:
    """The points of one metric from one origin."""

    origin: Origin
    name: str
    """The name of its family; empty if the metric's name has no legal character."""
    family_type: FamilyType
    unit: str
    metric_name: str
    """In OpenTelemetry."""
    metric_unit: str
    """The UCUM unit."""
    help: str
    is_described: bool
    """Whether the metric has a description. Else `help` is made from its name."""
    delta: bool
    unspecified: bool
    """Whether the metric is a sum or a histogram without a temporality, so that its points cannot be added up."""
    series_type: type[ExposedSeries]
    series: SeriesByKey = field(default_factory=dict)
    """The stream's series. One series has several keys if a sender changes the order of attributes."""

    @classmethod
    def of(cls, origin: Origin, metric: Metric, key: StreamKey, naming: Naming) -> "MetricStream":
        kind, name, unit, monotonic, temporality = key
        family_type, series_type = _TYPES.get(
            kind, ("counter", CounterSeries) if monotonic else ("gauge", NumberSeries)
        )
        description = metric.description.strip()
        return cls(
            origin=origin,
            name=naming.family(name, unit, is_gauge=kind == "gauge", is_counter=family_type == "counter"),
            family_type=family_type,
            unit=naming.unit(unit, is_gauge=kind == "gauge"),
            metric_name=name,
            metric_unit=unit,
            help=description or f"OpenTelemetry metric {name}{f' in {unit}' if unit else ''}.",
            is_described=bool(description),
            delta=temporality == _DELTA,
            unspecified=temporality == _UNSPECIFIED,
            series_type=series_type,
        )

    def key(self, point: Any) -> bytes:
        """The key of a point's series in `series`."""
        return number_key(point) if isinstance(point, NumberDataPoint) else attributes_key(point.attributes)

    def label_text(self, attributes: Iterable[KeyValue]) -> str:
        """The labels of a point with these attributes."""
        return self.origin.label_text(attributes, self.series_type.own_label)


@dataclass(slots=True, eq=False)
class OriginStreams:
    """The metric streams of one origin."""

    origin: Origin
    streams: dict[StreamKey, MetricStream] = field(default_factory=dict)

    @property
    def has_series(self) -> bool:
        return any(stream.series for stream in self.streams.values())

    def stream_of(self, metric: Metric, kind: str, data: Any, naming: Naming) -> MetricStream:
        """The stream of a metric, created if it is new. `data` is the metric's `kind` field."""
        key = stream_key(metric, kind, data)
        stream = self.streams.get(key)
        if stream is None:
            stream = self.streams[key] = MetricStream.of(self.origin, metric, key, naming)
        return stream

    def remove_empty_streams(self) -> None:
        self.streams = {key: stream for key, stream in self.streams.items() if stream.series}
