"""Streams: the points of one metric from one origin, and how to tell whose they are."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, NumberDataPoint

from otel_zernel.exposition.names import Naming
from otel_zernel.exposition.origin import Origin
from otel_zernel.exposition.series import Counter, Exponentials, Histogram, Number, Series, Summary

FamilyType = Literal["gauge", "counter", "histogram", "summary"]
StreamKey = tuple[str, str, str, bool, int]
"""Kind, name, unit, monotonic, temporality."""

_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
_UNSPECIFIED = AggregationTemporality.AGGREGATION_TEMPORALITY_UNSPECIFIED
_TYPES: dict[str, tuple[FamilyType, type[Series]]] = {
    "gauge": ("gauge", Number),
    "histogram": ("histogram", Histogram),
    "exponential_histogram": ("histogram", Exponentials),
    "summary": ("summary", Summary),
}
_CHANGING = re.compile(rb"(?:\x11.{8})?(?:\x19.{8})?(?:\x21.{8})?(?:\x31.{8})?", re.DOTALL)
"""What changes in an encoded number point: start, time, as_double and as_int, in front of its attributes."""
_ATTRIBUTES = 7 << 3 | 2
"""The tag of a number point's attributes."""


def attributes_key(attributes: Iterable[KeyValue]) -> bytes:
    """The attributes encoded as a number point's."""
    return NumberDataPoint(attributes=attributes).SerializeToString()


def number_key(point: NumberDataPoint) -> bytes:
    """The same for a number point, without a look at its attributes: all that stands behind the parts that change."""
    encoded = point.SerializeToString()
    found = _CHANGING.match(encoded)
    key = encoded[found.end() :] if found else encoded
    return key if not key or key[0] == _ATTRIBUTES else attributes_key(point.attributes)


def stream_key(metric: Metric, kind: str, data: Any) -> StreamKey:
    """What tells the streams of one origin apart."""
    if kind == "sum":
        return kind, metric.name, metric.unit, data.is_monotonic, data.aggregation_temporality
    temporality = data.aggregation_temporality if kind.endswith("histogram") else _CUMULATIVE
    return kind, metric.name, metric.unit, False, temporality


@dataclass(slots=True, eq=False)
class Stream:
    """The points of one metric from one origin."""

    origin: Origin
    name: str
    """Its family's; empty if there is none."""
    kind: FamilyType
    unit: str
    help: str
    delta: bool
    unspecified: bool
    """Sums and histograms must say whether they are cumulative; what does not can't be added up."""
    series_type: type[Series]
    known: dict[bytes, Series] = field(default_factory=dict)
    """The series by their attributes' encodings; several, if a sender changes the order."""

    @classmethod
    def of(cls, origin: Origin, metric: Metric, key: StreamKey, naming: Naming) -> "Stream":
        kind, name, unit, monotonic, temporality = key
        family_type, series_type = _TYPES.get(kind, ("counter", Counter) if monotonic else ("gauge", Number))
        return cls(
            origin=origin,
            name=naming.family(name, unit, is_gauge=kind == "gauge", is_counter=family_type == "counter"),
            kind=family_type,
            unit=naming.unit(unit, is_gauge=kind == "gauge"),
            help=metric.description.strip() or f"OpenTelemetry metric {name}{f' in {unit}' if unit else ''}.",
            delta=temporality == _DELTA,
            unspecified=temporality == _UNSPECIFIED,
            series_type=series_type,
        )

    def key(self, point: Any) -> bytes:
        """What `known` has a point's series under."""
        return number_key(point) if isinstance(point, NumberDataPoint) else attributes_key(point.attributes)

    def label_text(self, attributes: Iterable[KeyValue]) -> str:
        """The labels of a point."""
        return self.origin.label_text(attributes, self.series_type.own_label)
