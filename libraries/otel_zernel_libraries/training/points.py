"""Numbers of metrics with all attributes that describe them."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from otel_zernel.otlp.points import AttributeValue
from otel_zernel.otlp.staleness import has_no_value

LONGEST_TEXT: Final = 256
"""Characters of a text that comes from a sender."""
_SCALARS = frozenset({"string_value", "int_value", "double_value", "bool_value"})


class SeenValue(NamedTuple):
    """A number with all attributes that describe it."""

    value: float | None
    """None for a point without a recorded value: the series has ended. NaN and infinity count as no value."""
    time_ns: int
    attributes: Mapping[str, AttributeValue]
    """Those of the point."""
    resource: Mapping[str, AttributeValue]
    is_delta: bool = False
    """Whether it is the increase of a sum since the previous point."""
    start_ns: int = 0
    """When its sum began; 0 if that is not known."""

    def text(self, key: str) -> str:
        """An attribute of the point as text, cut to its longest; empty if it is missing."""
        return str(self.attributes.get(key, ""))[:LONGEST_TEXT]


def numbers_of(metric: Metric, resource: Mapping[str, AttributeValue]) -> Iterator[SeenValue]:
    """The points of a sum or a gauge."""
    is_delta = metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    for point in metric.sum.data_points or metric.gauge.data_points:
        number = point.as_int if point.HasField("as_int") else point.as_double
        value = None if has_no_value(point) or not math.isfinite(number) else number
        attributes = scalars_of(point.attributes)
        yield SeenValue(value, point.time_unix_nano, attributes, resource, is_delta, point.start_time_unix_nano)


def scalars_of(pairs: Iterable[KeyValue]) -> dict[str, AttributeValue]:
    """Attributes with a scalar value."""
    kinds = ((pair, pair.value.WhichOneof("value")) for pair in pairs)
    return {pair.key: getattr(pair.value, kind) for pair, kind in kinds if kind in _SCALARS}
