"""Encodes the counts of series as OTLP: summaries and exponential histograms.

The changing fields of a summary point have a fixed width: numpy writes them for many points at once, and the
attributes of each series follow. Field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, SummaryDataPoint

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Descriptor, MetricKind, encode_metric
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel.protobuf import delimited
from otel_zernel_libraries.histograms.hdr import Floats, Ints
from otel_zernel_processors.percentiles.config import Output
from otel_zernel_processors.percentiles.counts.exponential import ExponentialCounts
from otel_zernel_processors.percentiles.counts.series import PercentileSeries

_KINDS: dict[Output, MetricKind] = {"histogram": "exponential_histogram", "summary": "summary"}
_ATTRIBUTES: dict[Output, int] = {
    "histogram": ExponentialHistogramDataPoint.ATTRIBUTES_FIELD_NUMBER,
    "summary": SummaryDataPoint.ATTRIBUTES_FIELD_NUMBER,
}
_NUMBERS = [
    *(("start_tag", "u1"), ("start", "<u8"), ("time_tag", "u1"), ("time", "<u8")),
    *(("count_tag", "u1"), ("count", "<u8"), ("sum_tag", "u1"), ("sum", "<f8")),
]
_QUANTILE = np.dtype([("tag", "V2"), ("q_tag", "u1"), ("quantile", "<f8"), ("v_tag", "u1"), ("value", "<f8")])


def summary_points(
    series: Sequence[PercentileSeries],
    time_ns: int,
    counts: Ints,
    sums: Floats,
    quantiles: Sequence[float],
    values: Floats,
) -> list[bytes]:
    """The encoded SummaryDataPoint of each series; `counts` and `sums` of shape (n,), `values` of (n, q)."""
    point = np.dtype([*_NUMBERS, ("quantiles", _QUANTILE, (len(quantiles),))])
    points = np.zeros(len(series), point)
    points["start_tag"], points["time_tag"], points["count_tag"], points["sum_tag"] = 0x11, 0x19, 0x21, 0x29
    points["start"] = [one.start_ns for one in series]
    points["time"], points["count"], points["sum"] = time_ns, counts, sums
    at = points["quantiles"]
    at["tag"], at["q_tag"], at["v_tag"] = np.void(bytes((0x32, _QUANTILE.itemsize - 2))), 0x09, 0x11
    at["quantile"], at["value"] = quantiles, values
    encoded, size = points.tobytes(), point.itemsize
    return [encoded[row * size : (row + 1) * size] + _attributes(one, "summary") for row, one in enumerate(series)]


def staleness_points(series: Iterable[PercentileSeries], time_ns: int, output: Output) -> list[bytes]:
    """The encoded staleness point of each series."""
    without_attributes = encode_staleness(_KINDS[output], time_ns)
    return [without_attributes + _attributes(one, output) for one in series]


def exponential_point(
    series: PercentileSeries, time_ns: int, total: float, zero: float, counted: ExponentialCounts
) -> bytes:
    """An encoded ExponentialHistogramDataPoint of the values since the series' start.

    `total` is the sum of the values. Values up to `zero` are in the zero bucket.
    """
    point = ExponentialHistogramDataPoint(
        start_time_unix_nano=series.start_ns,
        time_unix_nano=time_ns,
        count=int(counted.counts.sum()) + counted.zeros,
        sum=total,
        scale=counted.scale,
        zero_count=counted.zeros,
        zero_threshold=zero,
    )
    if counted.lowest <= counted.highest:
        point.min, point.max = counted.lowest, counted.highest
    point.positive.offset = counted.offset
    point.positive.bucket_counts.extend(counted.counts.tolist())
    return point.SerializeToString() + _attributes(series, "histogram")


def _attributes(series: PercentileSeries, output: Output) -> bytes:
    field = _ATTRIBUTES[output]
    return b"".join(delimited(field, pair) for pair in series.attributes)


def encoded_exemplars(exemplars: Iterable[bytes]) -> bytes:
    """The exemplars of an ExponentialHistogramDataPoint, to be appended to its other fields."""
    return b"".join(delimited(ExponentialHistogramDataPoint.EXEMPLARS_FIELD_NUMBER, one) for one in exemplars)


def encode_metric_of(output: Output, name: str, one: PercentileSeries, points: Iterable[bytes]) -> bytes:
    """An encoded Metric with these points: a cumulative histogram or a summary. `one` is any of its series."""
    descriptor = Descriptor(name, one.stream.unit, _KINDS[output], one.stream.description)
    return encode_metric(descriptor, b"".join(delimited(1, point) for point in points))


def encode_batch(metrics: Iterable[tuple[PercentileSeries, bytes]], point_count: int) -> Batch:
    """A batch of encoded metrics, each with any of its series. Those of one resource and scope must stand together."""
    data = bytearray()
    for (resource, scope), group in groupby(metrics, lambda pair: (pair[0].stream.resource, pair[0].stream.scope)):
        body = delimited(1, scope) + b"".join(metric for _, metric in group)
        data += delimited(1, delimited(1, resource) + delimited(2, body))
    return Batch.encoded(metrics=bytes(data), point_count=point_count)
