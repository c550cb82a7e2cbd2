"""Gauges and sums: encoded once, with holes for the times and the values."""

import re
import secrets
import struct
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from otel_zernel.protobuf import delimited
from otel_zernel_receivers.prometheus.points.encoding import encode_head_metric
from otel_zernel_receivers.prometheus.points.sample import MetricHead, PointKey

Floats = NDArray[np.float64]
Times = NDArray[np.uint64]

# Number points end with fixed 64-bit fields, each behind its tag: start (2), time (3) and as_double (4).
_HOLE = np.dtype(
    [("start_tag", "u1"), ("start", "<u8"), ("time_tag", "u1"), ("time", "<u8"), ("value_tag", "u1"), ("value", "<f8")]
)
_NUMBER = struct.Struct("<BQBQBd")


class NumberTemplate:
    """The encoded metrics of several sections, in which numpy fills the times and the values."""

    def __init__(self, sections: Sequence[Sequence[PointKey]]) -> None:
        """Points of one metric stand together."""
        marker = secrets.token_bytes(_HOLE.itemsize)
        encoded = [_encode(points, marker) for points in sections]
        self._ends = np.cumsum([0, *map(len, encoded)]).tolist()
        message = b"".join(encoded)
        starts = [found.start() for found in re.finditer(re.escape(marker), message)]
        self._message = np.frombuffer(bytearray(message), np.uint8)
        self._at = np.array(starts, np.intp).reshape(-1, 1) + np.arange(_HOLE.itemsize)
        self._holes = np.zeros(len(starts), _HOLE)
        self._holes["start_tag"], self._holes["time_tag"], self._holes["value_tag"] = 0x11, 0x19, 0x21

    def encode(self, values: Floats, times: Times | int, starts: Times | int) -> list[bytes]:
        """The metrics of each section. The arrays have the order of the points, shape (n,); times are in ns."""
        self._holes["value"], self._holes["time"], self._holes["start"] = values, times, starts
        self._message[self._at] = self._holes.view(np.uint8).reshape(-1, _HOLE.itemsize)
        message = self._message.tobytes()
        return [message[start:end] for start, end in zip(self._ends, self._ends[1:], strict=False)]


def _encode(points: Sequence[PointKey], marker: bytes) -> bytes:
    return b"".join(
        encode_head_metric(metric, b"".join(_point(one, marker) for one in group))
        for metric, group in groupby(points, lambda one: one.metric)
    )


def _point(point: PointKey, hole: bytes) -> bytes:
    return delimited(1, point.attributes + hole)


def encode_number(attributes: bytes, value: float, time_ns: int, start_ns: int, exemplars: bytes) -> bytes:
    """One of the `data_points` of a gauge or sum, with exemplars."""
    return delimited(1, attributes + _NUMBER.pack(0x11, start_ns, 0x19, time_ns, 0x21, value) + exemplars)


def is_number(metric: MetricHead) -> bool:
    """Whether the points of a metric are single numbers."""
    return metric.descriptor.kind in ("gauge", "sum", "up_down")
