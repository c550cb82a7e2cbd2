"""Histograms: the counters of HDR histograms as numpy arrays, and the encoding of OTLP's histogram points.

The layout of the counters is that of the package hdrhistogram (and of the original in Java): the values of one bucket,
a power of two wide, share `2 ** magnitude` counters of equal width. Counter `index` of value `v` is

    bucket = floor(log2(v | (2 ** (magnitude + 1) - 1))) - magnitude
    index = (bucket << magnitude) + (v >> bucket)

The eBPF receiver computes the same in the kernel, with shifts alone (bpf/hdr.bpf.h). Percentiles are those of
`get_value_at_percentile`.

OTLP's explicit bounds can hold such counters without loss: `hdr_buckets` makes the bounds, and `integers_below` reads
them back. Field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otel_zernel.otlp.points import Period
from otel_zernel.protobuf import delimited
from otel_zernel_libraries.histograms.resolution import LARGEST

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_HEAD = struct.Struct("<BQBQBQBd")  # start (2), time (3) and count (4) as fixed64, sum (5) as double
_EXTREME = struct.Struct("<Bd")  # min (11) or max (12) as double


@dataclass(frozen=True)
class HdrLayout:
    """Maps the values from 0 to `highest` to counters."""

    highest: int = LARGEST
    """The largest value that must fit."""
    significant_figures: int = 3
    """Decimal digits that are kept of a value: 1 to 5."""

    @cached_property
    def magnitude(self) -> int:
        """log2 of the number of counters that each bucket adds. The first bucket has twice as many."""
        return int(2 * 10**self.significant_figures - 1).bit_length() - 1

    @cached_property
    def length(self) -> int:
        """The number of counters, as hdrhistogram allocates them."""
        buckets = (self.highest >> (self.magnitude + 1)).bit_length() + 1
        return (buckets + 1) << self.magnitude

    def index(self, values: ArrayLike) -> Ints:
        """The counter of each value. Values are from 0 to 2**62."""
        values = np.asarray(values, np.int64)
        bucket = _floor_log2(values | (2 << self.magnitude) - 1) - self.magnitude
        index: Ints = (bucket << self.magnitude) + (values >> bucket)
        return index

    def index_of(self, value: int) -> int:
        """The counter of a single value. It is faster than `index`, which is for arrays."""
        bucket = max(value.bit_length() - 1 - self.magnitude, 0)
        return (bucket << self.magnitude) + (value >> bucket)

    def limits_of(self, value: int) -> tuple[int, int]:
        """The smallest and the largest value that share a counter with this one."""
        bucket = max(value.bit_length() - 1 - self.magnitude, 0)
        lowest = value >> bucket << bucket
        return lowest, lowest + (1 << bucket) - 1

    def lowest(self, index: ArrayLike) -> Ints:
        """The smallest value of each counter."""
        index = np.asarray(index, np.int64)
        bucket = self._bucket(index)
        value: Ints = (index - (bucket << self.magnitude)) << bucket
        return value

    def highest_equivalent(self, index: ArrayLike) -> Ints:
        """The largest value of each counter."""
        index = np.asarray(index, np.int64)
        value: Ints = self.lowest(index) + (np.int64(1) << self._bucket(index)) - 1
        return value

    def _bucket(self, index: Ints) -> Ints:
        bucket: Ints = np.maximum((index >> self.magnitude) - 1, 0)
        return bucket

    def count(self, values: ArrayLike) -> Ints:
        """Counts values up to `highest`: all counters, shape (length,)."""
        return np.bincount(self.index(values), minlength=self.length)

    def at_percentile(self, index: ArrayLike, percentiles: ArrayLike) -> Ints:
        """The value that hdrhistogram returns for a percentile that is reached at counter `index`."""
        return np.where(np.asarray(percentiles) > 0, self.highest_equivalent(index), self.lowest(index))

    def percentiles(self, counts: ArrayLike, percentiles: ArrayLike) -> Ints:
        """The value at each percentile (0 to 100) of the counters, shape (length,) or less; 0 if nothing is counted."""
        reached = np.cumsum(counts, dtype=np.int64)
        if not len(reached) or not reached[-1]:
            return np.zeros(np.shape(percentiles), np.int64)
        return self.at_percentile(np.searchsorted(reached, ranks(reached[-1], percentiles)), percentiles)


def ranks(total: ArrayLike, percentiles: ArrayLike) -> Ints:
    """How many of `total` values must be counted to reach each percentile, rounded as in hdrhistogram.

    Shapes broadcast: totals of shape (n, 1) and percentiles of shape (q,) give (n, q).
    """
    wanted = np.minimum(np.asarray(percentiles, np.float64), 100.0) * np.asarray(total) / 100 + 0.5
    return np.asarray(np.maximum(wanted, 1), np.int64)


def _floor_log2(values: Ints) -> Ints:
    # The exponent of the value as a double. Clearing the bit below the topmost keeps the conversion from rounding up
    # to the next power of two.
    as_double = (values & ~(values >> 1)).astype(np.float64)
    exponent: Ints = (as_double.view(np.int64) >> 52) - 1023
    return exponent


def hdr_buckets(
    layout: HdrLayout, indexes: Sequence[Ints], counts: Sequence[Ints], per_unit: float
) -> Iterator[tuple[Floats, Ints]]:
    """The explicit buckets of several HDR histograms: for each its bounds, shape (n,), and counts, shape (n + 1,).

    `indexes` are the used counters of each histogram, ascending, and `counts` the values in each. `per_unit` integers
    are one unit of the metric. Bucket i reaches from bounds[i - 1] (exclusive) to bounds[i] (inclusive). Only used
    counters have bounds, so a consumer that knows the layout gets each count back, and others get an ordinary
    histogram. All histograms are computed at once, because numpy's calls cost more than the work for a single one.
    """
    index, counted = np.concatenate(indexes), np.concatenate(counts)
    begins = np.cumsum([0, *map(len, indexes)])
    # A counter has two buckets: the empty one below it and its own. There is no empty one where the counter below is
    # used too, and none below 0.
    bounds = np.stack((layout.lowest(index) - 1, layout.highest_equivalent(index)), axis=1)
    in_bucket = np.stack((np.zeros_like(counted), counted), axis=1)
    exists = np.ones(bounds.shape, bool)
    exists[1:, 0] = np.diff(index) != 1
    exists[begins[:-1], 0] = True
    exists[bounds[:, 0] < 0, 0] = False
    ends = np.concatenate(([0], np.cumsum(exists.sum(axis=1))))[begins]
    in_units, in_bucket = bounds[exists] / per_unit, np.insert(in_bucket[exists], ends[1:], 0)  # none above the last
    for number, (begin, end) in enumerate(pairwise(ends.tolist())):
        yield in_units[begin:end], in_bucket[begin + number : end + number + 1]


def integers_below(bounds: Floats, per_unit: float | Floats) -> Floats:
    """The largest integer up to each bound, where `per_unit` integers are one unit of the metric; as doubles.

    It undoes the division of `hdr_buckets`. A bound such as 1.023e-06 s is 1022.9999999999999 ns: a number that is an
    integer but for rounding is that integer.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # bounds may be infinite
        scaled = bounds * per_unit
        nearest: Floats = np.rint(scaled)
        return np.where(np.abs(scaled - nearest) <= 1e-15 * np.abs(scaled), nearest, np.floor(scaled))


def encode_buckets(bounds: Floats, counts: Ints) -> bytes:
    """The explicit buckets of a histogram point: bounds of shape (n,) and counts of shape (n + 1,), both 64-bit."""
    return delimited(6, counts.tobytes()) + delimited(7, bounds.tobytes())


def encode_histogram_point(
    attributes: bytes,
    period: Period,
    buckets: bytes,
    count: int,
    total: float,
    *,
    lowest: float | None = None,
    highest: float | None = None,
) -> bytes:
    """One of the `data_points` of a histogram with explicit bounds.

    `attributes` are encoded for `HISTOGRAM_ATTRIBUTES` and `buckets` by `encode_buckets`. `count` is the number of
    values, `total` their sum, `lowest` and `highest` the extremes if they are known.
    """
    head = _HEAD.pack(0x11, period.start_ns, 0x19, period.end_ns, 0x21, count, 0x29, total)
    low = b"" if lowest is None else _EXTREME.pack(0x59, lowest)
    high = b"" if highest is None else _EXTREME.pack(0x61, highest)
    return delimited(1, attributes + head + buckets + low + high)
