"""Encodes what was counted as OTLP: summaries and exponential histograms.

The fields of a summary point that change are fixed-width: numpy writes them for many points at once, and each is put
behind its series' attributes. Field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    ExponentialHistogramDataPoint,
    SummaryDataPoint,
)

from otel_zernel.batch import Batch
from otel_zernel.otlp.histograms import Floats, Ints
from otel_zernel.otlp.points import delimited
from otel_zernel_processors.percentiles.series import PercentileSeries as Series

_MAX_BUCKETS = 160  # the OpenTelemetry SDKs' default
_MAX_SCALE = 20  # theirs, too
_NUMBERS = [
    *(("start_tag", "u1"), ("start", "<u8"), ("time_tag", "u1"), ("time", "<u8")),
    *(("count_tag", "u1"), ("count", "<u8"), ("sum_tag", "u1"), ("sum", "<f8")),
]
_QUANTILE = np.dtype([("tag", "V2"), ("q_tag", "u1"), ("quantile", "<f8"), ("v_tag", "u1"), ("value", "<f8")])


def summary_points(
    series: Sequence[Series], time_ns: int, counts: Ints, sums: Floats, quantiles: Sequence[float], values: Floats
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
    return [
        encoded[row * size : (row + 1) * size] + b"".join(delimited(7, pair) for pair in one.attributes)
        for row, one in enumerate(series)
    ]


def end_points(
    series: Iterable[Series], time_ns: int, kind: type[SummaryDataPoint] | type[ExponentialHistogramDataPoint]
) -> list[bytes]:
    """An encoded point of each series that says it has no value any more."""
    flags, field = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK, kind.ATTRIBUTES_FIELD_NUMBER
    end = kind(time_unix_nano=time_ns, flags=flags).SerializeToString()
    return [end + b"".join(delimited(field, pair) for pair in one.attributes) for one in series]


def exponential_point(series: Series, time_ns: int, sum_: float, values: Floats, counts: Ints, zero: float) -> bytes:
    """An encoded ExponentialHistogramDataPoint of values that were counted, as finely as 160 buckets allow.

    `values` and `counts` have the shape (n,), the values ascending; those up to `zero` count as zero.
    """
    positive = values > zero
    scale, indexes = _buckets(values[positive])
    point = ExponentialHistogramDataPoint(
        start_time_unix_nano=series.start_ns,
        time_unix_nano=time_ns,
        count=int(counts.sum()),
        sum=sum_,
        scale=scale,
        zero_count=int(counts[~positive].sum()),
        zero_threshold=zero,
    )
    if len(indexes):
        point.positive.offset = int(indexes[0])
        buckets = np.zeros(indexes[-1] - indexes[0] + 1, np.int64)
        np.add.at(buckets, indexes - indexes[0], counts[positive])
        point.positive.bucket_counts.extend(buckets.tolist())
    return point.SerializeToString() + b"".join(delimited(1, pair) for pair in series.attributes)


def encoded_exemplars(exemplars: Iterable[bytes]) -> bytes:
    """The exemplars of an ExponentialHistogramDataPoint, to go behind its other fields."""
    return b"".join(delimited(ExponentialHistogramDataPoint.EXEMPLARS_FIELD_NUMBER, one) for one in exemplars)


def _buckets(values: Floats) -> tuple[int, Ints]:
    """The finest scale at which the values need few enough buckets, and the bucket of each."""
    if not len(values):
        return 0, np.empty(0, np.int64)
    exponents = np.log2(values)
    octaves = max(float(exponents[-1] - exponents[0]), 2.0**-_MAX_SCALE)
    scale = min(int(np.floor(np.log2((_MAX_BUCKETS - 1) / octaves))), _MAX_SCALE)
    return scale, np.ceil(np.ldexp(exponents, scale)).astype(np.int64) - 1


def summary(name: str, one: Series, points: Iterable[bytes]) -> bytes:
    """An encoded Metric, a Summary of these points."""
    return _metric(name, one, 11, b"".join(delimited(1, point) for point in points))


def exponential_histogram(name: str, one: Series, points: Iterable[bytes]) -> bytes:
    """An encoded Metric, a cumulative ExponentialHistogram of these points."""
    cumulative = bytes((2 << 3, AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE))
    return _metric(name, one, 10, b"".join(delimited(1, point) for point in points) + cumulative)


def _metric(name: str, one: Series, data_field: int, data: bytes) -> bytes:
    stream = one.stream
    header = delimited(1, name.encode()) + delimited(2, stream.description.encode())
    return delimited(2, header + delimited(3, stream.unit.encode()) + delimited(data_field, data))


def batch(metrics: Iterable[tuple[Series, bytes]], point_count: int) -> Batch:
    """A batch of encoded metrics, each with a series of its stream; those of one resource and scope together."""
    data = bytearray()
    for (resource, scope), group in groupby(metrics, lambda pair: (pair[0].stream.resource, pair[0].stream.scope)):
        body = delimited(1, scope) + b"".join(metric for _, metric in group)
        data += delimited(1, delimited(1, resource) + delimited(2, body))
    return Batch.encoded(metrics=bytes(data), point_count=point_count)
