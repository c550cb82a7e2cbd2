"""Delta histograms: counting values, and the points that say what was counted.

Samples are counted as the percentiles processor counts them, so that it answers as if it had seen every one: a value's
bucket is its counter of an HDR histogram with 3 significant figures, in units of the processor's default resolution
(https://github.com/HdrHistogram/HdrHistogram). Only counters that were used get bounds.
"""

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from otel_zernel.otlp.points import Attributes, delimited, key_values

_SUB_BUCKET_BITS = 11  # 2048 counters to the first bucket: the least power of two that tells 3 figures apart
_MOST_COUNTERS = 512  # remembered; a series with more forgets those of old points

_HEAD, _EXTREMES = struct.Struct("<BqBqBqBd"), struct.Struct("<BdBd")
_DELTA = bytes((2 << 3, AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA))


class Distribution:
    """What was counted since the last point. Bounds stay from point to point, so that points can be added up."""

    def __init__(self, scaled: Callable[[float], float], per_unit: float) -> None:
        """`scaled` makes values of numbers; `per_unit` integers to the unit are told apart, as far as 3 figures go."""
        self._scaled = scaled
        self._per_unit = per_unit
        self._counts: Counter[float] = Counter()
        self._bounds: list[float] = []
        self._known: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, numbers: Iterable[float]) -> None:
        """Counts numbers, none of them negative."""
        self._counts.update(numbers)

    def take(self, attributes: bytes, start_ns: int, time_ns: int) -> bytes:
        """A `HistogramDataPoint` of what was counted, which is then forgotten. There must be something."""
        counted, self._counts = self._counts, Counter()
        values = [(self._scaled(number), count) for number, count in sorted(counted.items())]
        self._learn([round(value * self._per_unit) for value, _ in values])
        counts = [0] * (len(self._bounds) + 1)
        for value, count in values:
            counts[bisect_left(self._bounds, value)] += count
        total = sum(value * count for value, count in values)
        extremes = values[0][0], values[-1][0]
        return encode_histogram_point(attributes, start_ns, time_ns, self._bounds, counts, total, extremes)

    def _learn(self, units: Iterable[int]) -> None:
        ends = {end for one in units for end in _edges(one)}
        if not ends <= self._known:
            self._known = self._known | ends if len(self._known) < 2 * _MOST_COUNTERS else ends
            self._bounds = [end / self._per_unit for end in sorted(self._known)]


def _edges(value: int) -> tuple[int, ...]:
    """What bounds the value's counter: the greatest integers of the one before, if there is one, and of its own."""
    shift = max(value.bit_length() - _SUB_BUCKET_BITS, 0)
    low = value >> shift << shift
    high = low + (1 << shift) - 1
    return (low - 1, high) if low else (high,)


DURATIONS = tuple(4.0**power * 1e-6 for power in range(13))
"""Bounds for the cost of a query, in s: from 1 us to 17 s."""


class Durations:
    """What was measured since the last point, in fixed buckets."""

    def __init__(self) -> None:
        self._measured: list[float] = []

    def __bool__(self) -> bool:
        return bool(self._measured)

    def add(self, seconds: float) -> None:
        """Counts one."""
        self._measured.append(seconds)

    def take(self, attributes: bytes, start_ns: int, time_ns: int) -> bytes:
        """A `HistogramDataPoint` of what was measured, which is then forgotten. There must be something."""
        measured, self._measured = self._measured, []
        counts = [0] * (len(DURATIONS) + 1)
        for seconds in measured:
            counts[bisect_left(DURATIONS, seconds)] += 1
        extremes = min(measured), max(measured)
        return encode_histogram_point(attributes, start_ns, time_ns, DURATIONS, counts, sum(measured), extremes)


def encode_histogram_point(
    attributes: bytes,
    start_ns: int,
    time_ns: int,
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float,
    extremes: tuple[float, float],
) -> bytes:
    """An encoded `HistogramDataPoint` (field numbers of metrics.proto); `attributes` come from
    `encode_histogram_attributes`."""
    head = _HEAD.pack(0x11, start_ns, 0x19, time_ns, 0x21, sum(counts), 0x29, total)
    buckets = _buckets(tuple(bounds), tuple(counts))
    return attributes + head + buckets + _EXTREMES.pack(0x59, extremes[0], 0x61, extremes[1])


@lru_cache(maxsize=4096)
def _buckets(bounds: tuple[float, ...], counts: tuple[int, ...]) -> bytes:
    """Counts and bounds, which repeat where little happens."""
    packed = struct.pack(f"<{len(counts)}q", *counts), struct.pack(f"<{len(bounds)}d", *bounds)
    return delimited(6, packed[0]) + delimited(7, packed[1])


def encode_histogram_attributes(attributes: Attributes) -> bytes:
    """The attributes as fields of a histogram point."""
    return b"".join(delimited(9, pair.SerializeToString()) for pair in key_values(attributes))


def encode_histogram(name: str, unit: str, description: str, points: Iterable[bytes]) -> bytes:
    """A metric of a `ScopeMetrics`: a delta histogram with these points."""
    texts = b"".join(delimited(number, text.encode()) for number, text in enumerate((name, description, unit), 1))
    return delimited(2, texts + delimited(9, b"".join(delimited(1, point) for point in points) + _DELTA))
