"""Encodes metrics, resources and scopes. Field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto."""

from collections.abc import Iterable
from functools import lru_cache

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from otel_zernel.otlp.points import MetricKind, encode_attributes, encode_resource, key_values
from otel_zernel.protobuf import delimited
from otel_zernel_receivers.prometheus.points.sample import MetricHead, Pairs, SampleScope

_ATTRIBUTES: dict[MetricKind, int] = {
    "gauge": pb.NumberDataPoint.ATTRIBUTES_FIELD_NUMBER,
    "sum": pb.NumberDataPoint.ATTRIBUTES_FIELD_NUMBER,
    "up_down": pb.NumberDataPoint.ATTRIBUTES_FIELD_NUMBER,
    "histogram": pb.HistogramDataPoint.ATTRIBUTES_FIELD_NUMBER,
    "exponential_histogram": pb.ExponentialHistogramDataPoint.ATTRIBUTES_FIELD_NUMBER,
    "summary": pb.SummaryDataPoint.ATTRIBUTES_FIELD_NUMBER,
}
_DATA: dict[MetricKind, int] = {
    "gauge": pb.Metric.GAUGE_FIELD_NUMBER,
    "sum": pb.Metric.SUM_FIELD_NUMBER,
    "up_down": pb.Metric.SUM_FIELD_NUMBER,
    "histogram": pb.Metric.HISTOGRAM_FIELD_NUMBER,
    "exponential_histogram": pb.Metric.EXPONENTIAL_HISTOGRAM_FIELD_NUMBER,
    "summary": pb.Metric.SUMMARY_FIELD_NUMBER,
}
_CUMULATIVE = bytes(
    (pb.Sum.AGGREGATION_TEMPORALITY_FIELD_NUMBER << 3, pb.AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE)
)
_MONOTONIC = bytes((pb.Sum.IS_MONOTONIC_FIELD_NUMBER << 3, 1))
_AFTER_POINTS: dict[MetricKind, bytes] = {
    "gauge": b"",
    "summary": b"",
    "sum": _CUMULATIVE + _MONOTONIC,
    "up_down": _CUMULATIVE,
    "histogram": _CUMULATIVE,
    "exponential_histogram": _CUMULATIVE,
}


def encode_point_pairs(kind: MetricKind, attributes: Pairs) -> bytes:
    """The attributes as fields of a point of this kind."""
    return b"".join(_pair(_ATTRIBUTES[kind], name, value) for name, value in attributes)


@lru_cache(maxsize=16384)
def _pair(field: int, name: str, value: object) -> bytes:
    if isinstance(value, str):
        any_value = delimited(2, delimited(1, value.encode("utf-8", "replace")))
        return delimited(field, delimited(1, name.encode("utf-8", "replace")) + any_value)
    return encode_attributes({name: value}, field)  # type: ignore[dict-item]  # from Pairs


def encode_head_metric(head: MetricHead, data_points: bytes) -> bytes:
    """A metric of a `ScopeMetrics`, around its encoded `data_points`."""
    before, after = _metadata(head)
    kind = head.descriptor.kind
    return delimited(2, before + delimited(_DATA[kind], data_points + _AFTER_POINTS[kind]) + after)


@lru_cache(maxsize=4096)
def _metadata(head: MetricHead) -> tuple[bytes, bytes]:
    descriptor = head.descriptor
    texts = ((1, descriptor.name), (2, descriptor.description), (3, descriptor.unit))
    before = b"".join(delimited(number, text.encode("utf-8", "replace")) for number, text in texts if text)
    (pair,) = key_values({"prometheus.type": head.type})
    return before, delimited(pb.Metric.METADATA_FIELD_NUMBER, pair.SerializeToString())


def encode_section(resource: bytes, scope: bytes, metrics: Iterable[bytes]) -> bytes:
    """A `ResourceMetrics` of a `MetricsData`: one resource, one scope, and its encoded metrics."""
    return delimited(1, delimited(1, resource) + delimited(2, scope + b"".join(metrics)))


def encode_scope_fields(scope: SampleScope, attributes: Pairs = ()) -> bytes:
    """The fields of a `ScopeMetrics` beside its metrics."""
    message = InstrumentationScope(
        name=scope.name, version=scope.version, attributes=key_values(dict(attributes) | dict(scope.attributes))
    )
    url = pb.ScopeMetrics(schema_url=scope.schema_url).SerializeToString()
    return delimited(1, message.SerializeToString()) + url


def encode_target_resource(attributes: Pairs) -> bytes:
    """An encoded `Resource`."""
    return encode_resource(dict(attributes))
