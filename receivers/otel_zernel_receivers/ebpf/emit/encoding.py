"""Delta histograms, delta sums and gauges as OTLP, encoded by hand.

Field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto.

The bounds of histograms are those of the HDR counters, and only around counters that have counted: a consumer that
knows the layout gets every count back in its place, and one that does not gets an ordinary histogram.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, DataPointFlags

from otel_zernel.otlp.histograms import Floats, HdrLayout, Ints
from otel_zernel.otlp.points import Attributes, delimited, key_values
from otel_zernel_receivers.ebpf.tables.series import SeriesReading

NUMBER_ATTRIBUTES, HISTOGRAM_ATTRIBUTES = 7, 9
"""The fields of a point that hold its attributes."""
HIGHEST = (1 << 63) - 1
"""Of OTLP's integers. A program may say that it has copied any number of bytes."""

_NS = 1e9
_HISTOGRAM_HEAD = struct.Struct("<BQBQBQBd")  # start (2), time (3) and count (4) as fixed64, sum (5) as double
_TIME = struct.Struct("<BQ")  # time (3)
_MAX = struct.Struct("<Bd")  # max (12)
# start (2) and time (3) as fixed64, as_int (6) as sfixed64 or as_double (4)
_INTEGER, _DOUBLE = struct.Struct("<BQBQBq"), struct.Struct("<BQBQBd")

_DELTA = bytes((2 << 3, AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA))
_NO_RECORDED_VALUE = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_FLAGS = {"gauge": 8, "sum": 8, "histogram": 10}
_MONOTONIC = bytes((3 << 3, 1))
# The field of a metric that holds the points, and what stands behind them there.
_DATA = {"gauge": (5, b""), "sum": (7, _DELTA + _MONOTONIC), "histogram": (9, _DELTA)}


@dataclass(frozen=True, slots=True)
class Family:
    """What a metric is. Sums are monotonic; sums and histograms are deltas."""

    name: str
    unit: str
    data: Literal["gauge", "sum", "histogram"]
    description: str


@dataclass(frozen=True, slots=True)
class Period:
    """The time that a reading covers, ns since 1970."""

    start_ns: int
    end_ns: int


def encode_metric(family: Family, points: Sequence[bytes]) -> bytes:
    """A metric of a `ScopeMetrics`, around its encoded points."""
    texts = (family.name, family.description, family.unit)
    header = b"".join(delimited(number, text.encode()) for number, text in enumerate(texts, 1))
    number, trailer = _DATA[family.data]
    return delimited(2, header + delimited(number, b"".join(points) + trailer))


def encode_number_point(attributes: bytes, value: float, period: Period) -> bytes:
    """One of the `data_points` of a gauge or sum; `attributes` are encoded for `NUMBER_ATTRIBUTES`."""
    layout, tag, told = (_INTEGER, 0x31, min(value, HIGHEST)) if isinstance(value, int) else (_DOUBLE, 0x21, value)
    return delimited(1, attributes + layout.pack(0x11, period.start_ns, 0x19, period.end_ns, tag, told))


def encode_end_point(family: Family, attributes: bytes, time_ns: int) -> bytes:
    """One of the `data_points` of any metric: it says that the series has no value from this time on."""
    flags = bytes((_FLAGS[family.data] << 3, _NO_RECORDED_VALUE))
    return delimited(1, attributes + _TIME.pack(0x19, time_ns) + flags)


def encode_histogram_points(
    attributes: Iterable[bytes], readings: Sequence[SeriesReading], layout: HdrLayout, period: Period
) -> list[bytes]:
    """The `data_points` of histograms in seconds, one for each reading; `attributes` are encoded for
    `HISTOGRAM_ATTRIBUTES`. Each reading has counted something."""
    return [
        delimited(1, of_point + _encode_histogram(reading, bounds, counts, period))
        for of_point, reading, (bounds, counts) in zip(attributes, readings, buckets(readings, layout), strict=True)
    ]


def _encode_histogram(reading: SeriesReading, bounds: Floats, counts: Ints, period: Period) -> bytes:
    count, sum_s = int(counts.sum()), reading.sum_ns / _NS
    head = _HISTOGRAM_HEAD.pack(0x11, period.start_ns, 0x19, period.end_ns, 0x21, count, 0x29, sum_s)
    tail = b"" if reading.highest_ns is None else _MAX.pack(0x61, reading.highest_ns / _NS)
    return head + delimited(6, counts.tobytes()) + delimited(7, bounds.tobytes()) + tail


def buckets(readings: Sequence[SeriesReading], layout: HdrLayout) -> Iterator[tuple[Floats, Ints]]:
    """Of each reading, bounds in seconds, shape (n,), and counts, shape (n + 1,): bucket i reaches from bounds[i - 1]
    (exclusive) to bounds[i] (inclusive). All are computed in one go: of a single one, numpy's calls would cost most."""
    index = np.concatenate([reading.index for reading in readings])
    counted = np.concatenate([reading.counts for reading in readings])
    begins = np.cumsum([0, *(len(reading.index) for reading in readings)])
    # A counter has two buckets: what is empty below it, and its own. The first is there only if it isn't empty itself.
    bounds = np.stack((layout.lowest(index) - 1, layout.highest_equivalent(index)), axis=1)
    counts = np.stack((np.zeros_like(counted), counted), axis=1)
    is_there = np.ones(bounds.shape, bool)
    is_there[1:, 0] = np.diff(index) != 1
    is_there[begins[:-1], 0] = True
    is_there[bounds[:, 0] < 0, 0] = False
    ends = np.concatenate(([0], np.cumsum(is_there.sum(axis=1))))[begins]
    bounds_s, counts = bounds[is_there] / _NS, np.insert(counts[is_there], ends[1:], 0)  # nothing is above the last
    for number, (begin, end) in enumerate(pairwise(ends.tolist())):
        yield bounds_s[begin:end], counts[begin + number : end + number + 1]


def encode_attributes(attributes: Attributes, field: int) -> bytes:
    """The attributes as that field of a point."""
    return b"".join(delimited(field, pair.SerializeToString()) for pair in key_values(attributes))
