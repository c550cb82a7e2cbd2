"""Gauges and sums: encoded once, with holes for the times and the values."""

import struct
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from otel_zernel.protobuf import delimited
from otel_zernel_libraries.arrays import NumberHoles, hole_marker
from otel_zernel_receivers.prometheus.points.encoding import encode_head_metric
from otel_zernel_receivers.prometheus.points.sample import MetricHead, PointKey

Floats = NDArray[np.float64]
Times = NDArray[np.uint64]

_NUMBER = struct.Struct("<BQBQBd")


class NumberTemplate:
    """The encoded metrics of several sections, in which numpy fills the times and the values."""

    def __init__(self, sections: Sequence[Sequence[PointKey]]) -> None:
        """Points of one metric stand together."""
        marker = hole_marker()
        encoded = [_encode(points, marker) for points in sections]
        self._ends = np.cumsum([0, *map(len, encoded)]).tolist()
        self._holes = NumberHoles(b"".join(encoded), marker)

    def encode(self, values: Floats, times: Times | int, starts: Times | int) -> list[bytes]:
        """The metrics of each section. The arrays have the order of the points, shape (n,); times are in ns."""
        message = self._holes.filled(values, times, starts)
        return [message[start:end] for start, end in zip(self._ends, self._ends[1:], strict=False)]


def _encode(points: Sequence[PointKey], marker: bytes) -> bytes:
    return b"".join(
        encode_head_metric(metric, b"".join(_point(point_, marker) for point_ in group))
        for metric, group in groupby(points, lambda point_: point_.metric)
    )


def _point(point: PointKey, hole: bytes) -> bytes:
    return delimited(1, point.attributes + hole)


def encode_number(attributes: bytes, value: float, time_ns: int, start_ns: int, exemplars: bytes) -> bytes:
    """One of the `data_points` of a gauge or sum, with exemplars."""
    return delimited(1, attributes + _NUMBER.pack(0x11, start_ns, 0x19, time_ns, 0x21, value) + exemplars)


def is_number(metric: MetricHead) -> bool:
    """Whether the points of a metric are single numbers."""
    return metric.descriptor.kind in ("gauge", "sum", "up_down")
