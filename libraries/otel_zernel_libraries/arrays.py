"""Number points of OTLP from numpy arrays of times and values.

`KnownSeries` holds a whole message with holes for times and values, which numpy fills. The rest of the encoding is in
`otel_zernel.otlp.points`, which needs no numpy: importing numpy takes 50 ms.
"""

import re
import secrets
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Series, encode_metric, encode_resource_metrics
from otel_zernel.protobuf import delimited

# Number points end with fixed 64-bit fields, each behind its tag: start (2), time (3) and as_double (4) or as_int (6).
_HOLES = np.dtype(
    [("start_tag", "u1"), ("start", "<u8"), ("time_tag", "u1"), ("time", "<u8"), ("value_tag", "u1"), ("value", "<f8")]
)
_TAGS = (0x11, 0x19, 0x21)
POINT_TAIL = _HOLES.itemsize
"""The size in bytes of a point after its head."""


def encode_number_points(
    attributes: bytes, times: NDArray[np.uint64], values: NDArray[np.float64], start_ns: int = 0
) -> bytes:
    """The `data_points` of one series: `times` in ns and `values`, of one shape (n,)."""
    head = number_point_head(attributes)
    return b"".join(head + tail for tail in number_point_tails(times, values, start_ns))


def exact_factors(scale: float) -> tuple[float, float]:
    """Multiplier and divisor of a scale. A scale of 1/n becomes a divisor: 57 % is 0.57, not 0.5700000000000001."""
    divisor = round(1 / scale) if 1e-15 < scale < 1 else 1
    return (1.0, float(divisor)) if divisor > 1 and 1 / divisor == scale else (scale, 1.0)


def number_point_head(attributes: bytes) -> bytes:
    """The first part of every point of a series. A point is its head and a tail."""
    return delimited(1, attributes + bytes(_HOLES.itemsize))[: -_HOLES.itemsize]


def number_point_tails(times: NDArray[np.uint64], values: NDArray[np.float64], start_ns: int = 0) -> list[bytes]:
    """The last parts of points: `times` in ns and `values`, of one shape (n,), of any mix of series."""
    holes = np.zeros(len(values), _HOLES)
    _fill(holes, times, values, start_ns)
    tails: list[bytes] = holes.view(f"V{_HOLES.itemsize}").tolist()
    return tails


def fill_number_points(
    message: bytearray, ends: NDArray[np.int64], times: NDArray[np.uint64], values: NDArray[np.float64]
) -> None:
    """Writes the tails of points over the `POINT_TAIL` bytes before `ends`: offsets in the message, of shape (n,)."""
    holes = np.zeros(len(values), _HOLES)
    _fill(holes, times, values, 0)
    tail = f"V{POINT_TAIL}"
    everywhere = np.ndarray((len(message) - POINT_TAIL + 1,), tail, message, strides=(1,))  # the tail at every offset
    everywhere[ends - POINT_TAIL] = holes.view(tail)


def _fill(
    holes: NDArray[np.void],
    times: NDArray[np.uint64] | int,
    values: NDArray[np.float64],
    start_ns: NDArray[np.uint64] | int,
) -> None:
    holes["start_tag"], holes["time_tag"], holes["value_tag"] = _TAGS
    holes["start"], holes["time"], holes["value"] = start_ns, times, values


def hole_marker() -> bytes:
    """Stands for each hole while a message is encoded."""
    return secrets.token_bytes(POINT_TAIL)


class NumberHoles:
    """An encoded message with holes for the starts, times and values of number points, which numpy fills."""

    def __init__(self, message: bytes, marker: bytes) -> None:
        """Points end with `marker`."""
        starts = [match.start() for match in re.finditer(re.escape(marker), message)]
        self._message = np.frombuffer(bytearray(message), np.uint8)
        self._at = np.array(starts, np.intp).reshape(-1, 1) + np.arange(POINT_TAIL)
        self._holes = np.zeros(len(starts), _HOLES)

    def __len__(self) -> int:
        """The number of points."""
        return len(self._holes)

    def filled(
        self, values: NDArray[np.float64], times: NDArray[np.uint64] | int, start_ns: NDArray[np.uint64] | int
    ) -> bytes:
        """The message with these values. Arrays have the shape (n,), in the order of the points; times are in ns."""
        _fill(self._holes, times, values, start_ns)
        self._message[self._at] = self._holes.view(np.uint8).reshape(-1, POINT_TAIL)
        return self._message.tobytes()


class KnownSeries:
    """Encodes scrapes of a fixed set of series: one encoded `MetricsData` with holes for the times and the values.

    Series of one resource, scope and descriptor should stand together. Otherwise their headers repeat, which is valid
    but longer. If the set of series changes, build a new one.
    """

    def __init__(self, series: Sequence[Series]) -> None:
        marker = hole_marker()
        self._holes = NumberHoles(b"".join(_encode_series(series, marker)), marker)

    def encode(self, values: NDArray[np.float64], time_ns: int, start_ns: NDArray[np.uint64] | int = 0) -> bytes:
        """The scrape at `time_ns`, with `values` of shape (n,) in the order of the series.

        `start_ns` is the start of all series, or an array of shape (n,) with the start of each.
        """
        return self._holes.filled(values, time_ns, start_ns)

    def batch(
        self,
        values: Sequence[float] | NDArray[np.float64],
        time_ns: int,
        start_ns: NDArray[np.uint64] | int = 0,
    ) -> Batch:
        """The same as a batch."""
        encoded = self.encode(np.asarray(values, np.float64), time_ns, start_ns)
        return Batch.encoded("metrics", encoded, len(self._holes))


def _encode_series(series: Sequence[Series], hole: bytes) -> Iterator[bytes]:
    for (resource, scope), of_scope in groupby(series, lambda entry: (entry.resource, entry.scope)):
        metrics = [
            encode_metric(descriptor, b"".join(delimited(1, entry.attributes + hole) for entry in group))
            for descriptor, group in groupby(of_scope, lambda entry: entry.descriptor)
        ]
        yield encode_resource_metrics(resource, scope, metrics)
