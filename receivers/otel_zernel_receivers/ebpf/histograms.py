"""Delta histograms as OTLP, encoded by hand: field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto.

The bounds are those of the HDR counters, and only around counters that have counted: a consumer that knows the layout
gets every count back in its place, and one that does not gets an ordinary histogram.
"""

import struct

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from otel_zernel.points import delimited
from otel_zernel_receivers.ebpf.hdr import Layout
from otel_zernel_receivers.ebpf.table import Reading

_TIMES_COUNT_SUM = struct.Struct("<BQBQBQBd")  # start (2), time (3) and count (4) as fixed64, sum (5) as double
_MAX = struct.Struct("<Bd")  # max (12)
_NS = 1e9

HISTOGRAM_DELTA = bytes((2 << 3, AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA))
"""What stands behind the points in a `Histogram`."""


def encode_attributes(pairs: list[bytes]) -> bytes:
    """The attributes of a histogram point, from encoded `KeyValue`s."""
    return b"".join(delimited(9, pair) for pair in pairs)


def encode_histogram_point(attributes: bytes, reading: Reading, layout: Layout, start_ns: int, end_ns: int) -> bytes:
    """One `data_points` of a `Histogram` in seconds: what was counted from `start_ns` to `end_ns`, Unix time."""
    bounds, counts = buckets(reading, layout)
    head = _TIMES_COUNT_SUM.pack(
        0x11, start_ns, 0x19, end_ns, 0x21, int(reading.counts.sum()), 0x29, reading.sum_ns / _NS
    )
    body = delimited(6, counts.astype("<u8").tobytes()) + delimited(7, bounds.astype("<f8").tobytes())
    tail = b"" if reading.highest_ns is None else _MAX.pack(0x61, reading.highest_ns / _NS)
    return delimited(1, attributes + head + body + tail)


def buckets(reading: Reading, layout: Layout) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Bounds in seconds, shape (n,), and counts, shape (n + 1,): bucket i reaches from bounds[i - 1] (exclusive) to
    bounds[i] (inclusive)."""
    lowest, highest = layout.ranges(reading.index)
    below = lowest[lowest > 0] - 1
    bounds = np.union1d(below, highest)
    counts = np.zeros(len(bounds) + 1, np.int64)
    counts[np.searchsorted(bounds, highest)] = reading.counts
    return bounds / _NS, counts
