"""Staleness points: points with the flag NO_RECORDED_VALUE, which end a series.

A consumer that receives one drops the series. Prometheus calls them staleness markers; OTLP defines the flag in
https://opentelemetry.io/docs/specs/otel/metrics/data-model/#no-recorded-value.
"""

import struct
from typing import Any, Protocol

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    DataPointFlags,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    SummaryDataPoint,
)

from otel_zernel.otlp.points import MetricKind

_NO_RECORDED_VALUE = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_TIME = struct.Struct("<BQ")  # time_unix_nano, field 3 of every kind of point, as fixed64
_FLAGS: dict[MetricKind, int] = {
    "gauge": NumberDataPoint.FLAGS_FIELD_NUMBER,
    "sum": NumberDataPoint.FLAGS_FIELD_NUMBER,
    "up_down": NumberDataPoint.FLAGS_FIELD_NUMBER,
    "histogram": HistogramDataPoint.FLAGS_FIELD_NUMBER,
    "exponential_histogram": ExponentialHistogramDataPoint.FLAGS_FIELD_NUMBER,
    "summary": SummaryDataPoint.FLAGS_FIELD_NUMBER,
}
"""The field that holds the flags, by the kind of the metric."""


class Flagged(Protocol):
    """A data point of any kind."""

    @property
    def flags(self) -> int: ...


def has_no_value(point: Flagged) -> bool:
    """Whether this is a staleness point: its series has ended, and its value must not be read."""
    return point.flags & _NO_RECORDED_VALUE != 0


def encode_staleness(kind: MetricKind, time_ns: int) -> bytes:
    """The fields of a staleness point of a metric of this kind, but for the series' attributes.

    Together with the encoded attributes, before or after them, they are the point.
    """
    return _TIME.pack(0x19, time_ns) + bytes((_FLAGS[kind] << 3, _NO_RECORDED_VALUE))


def staleness_metric(metric: Metric, point: Any) -> Metric:
    """The metric with one point: the staleness point of the series that `point` belongs to. Its time is not set."""
    stale = Metric()
    stale.CopyFrom(metric)
    data_points = getattr(stale, stale.WhichOneof("data") or "gauge").data_points
    del data_points[:]
    data_points.add(attributes=point.attributes, flags=_NO_RECORDED_VALUE)
    return stale
