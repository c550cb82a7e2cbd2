"""Delta histograms, delta sums and gauges as OTLP, encoded by hand.

Field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto.

The bounds of histograms are those of the HDR counters, and only around counters that have counted: a consumer that
knows the layout gets every count back in its place, and one that does not gets an ordinary histogram.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from otel_zernel.hdr import Layout
from otel_zernel.points import Attributes, delimited, key_values
from otel_zernel_receivers.ebpf.series import SeriesReading

_NS = 1e9
_HISTOGRAM_HEAD = struct.Struct("<BQBQBQBd")  # start (2), time (3) and count (4) as fixed64, sum (5) as double
_MAX = struct.Struct("<Bd")  # max (12)
# start (2) and time (3) as fixed64, as_int (6) as sfixed64 or as_double (4)
_INTEGER, _DOUBLE = struct.Struct("<BQBQBq"), struct.Struct("<BQBQBd")

_DELTA = bytes((2 << 3, AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA))
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


def encode_number_point(attributes: Attributes, value: float, period: Period) -> bytes:
    """One of the `data_points` of a gauge or sum."""
    layout, tag = (_INTEGER, 0x31) if isinstance(value, int) else (_DOUBLE, 0x21)
    numbers = layout.pack(0x11, period.start_ns, 0x19, period.end_ns, tag, value)
    return delimited(1, _encoded(tuple(attributes.items()), 7) + numbers)


def encode_histogram_point(attributes: Attributes, reading: SeriesReading, layout: Layout, period: Period) -> bytes:
    """One of the `data_points` of a histogram in seconds."""
    bounds, counts = buckets(reading, layout)
    count = int(reading.counts.sum())
    head = _HISTOGRAM_HEAD.pack(0x11, period.start_ns, 0x19, period.end_ns, 0x21, count, 0x29, reading.sum_ns / _NS)
    body = delimited(6, counts.astype("<u8").tobytes()) + delimited(7, bounds.astype("<f8").tobytes())
    tail = b"" if reading.highest_ns is None else _MAX.pack(0x61, reading.highest_ns / _NS)
    return delimited(1, _encoded(tuple(attributes.items()), 9) + head + body + tail)


def buckets(reading: SeriesReading, layout: Layout) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Bounds in seconds, shape (n,), and counts, shape (n + 1,): bucket i reaches from bounds[i - 1] (exclusive) to
    bounds[i] (inclusive)."""
    lowest, highest = layout.lowest(reading.index), layout.highest_equivalent(reading.index)
    below = lowest[lowest > 0] - 1
    bounds = np.union1d(below, highest)
    counts = np.zeros(len(bounds) + 1, np.int64)
    counts[np.searchsorted(bounds, highest)] = reading.counts
    return bounds / _NS, counts


@lru_cache(maxsize=8192)
def _encoded(attributes: tuple[tuple[str, str | int], ...], field: int) -> bytes:
    return b"".join(delimited(field, pair.SerializeToString()) for pair in key_values(dict(attributes)))
