"""The counters of an HDR histogram, as numpy arrays.

The layout is that of the package hdrhistogram (and of the original in Java): the values of one bucket, a power of two
wide, share `2 ** magnitude` counters of equal width. Counter `index` of value `v` is

    bucket = floor(log2(v | (2 ** (magnitude + 1) - 1))) - magnitude
    index = (bucket << magnitude) + (v >> bucket)

which is also what the eBPF receiver computes in the kernel, with shifts alone (bpf/hdr.bpf.h). Percentiles are those of
`get_value_at_percentile`.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LARGEST = 2**62
"""The largest value a layout may track."""


@dataclass(frozen=True)
class HdrLayout:
    """Where each value from 0 to `highest` is counted."""

    highest: int = LARGEST
    """The largest value that has to fit."""
    significant_figures: int = 3
    """Decimal digits in which two values must differ to be told apart: 1 to 5."""

    @cached_property
    def magnitude(self) -> int:
        """log2 of the number of counters a bucket adds; half of the first bucket's."""
        return int(2 * 10**self.significant_figures - 1).bit_length() - 1

    @cached_property
    def length(self) -> int:
        """The number of counters, as hdrhistogram allocates them."""
        buckets = (self.highest >> (self.magnitude + 1)).bit_length() + 1
        return (buckets + 1) << self.magnitude

    def index(self, values: ArrayLike) -> Ints:
        """The counter of each value, all from 0 to 2**62."""
        values = np.asarray(values, np.int64)
        bucket = _floor_log2(values | (2 << self.magnitude) - 1) - self.magnitude
        index: Ints = (bucket << self.magnitude) + (values >> bucket)
        return index

    def lowest(self, index: ArrayLike) -> Ints:
        """The smallest value that each counter counts."""
        index = np.asarray(index, np.int64)
        bucket = self._bucket(index)
        value: Ints = (index - (bucket << self.magnitude)) << bucket
        return value

    def highest_equivalent(self, index: ArrayLike) -> Ints:
        """The largest value that each counter counts."""
        index = np.asarray(index, np.int64)
        value: Ints = self.lowest(index) + (np.int64(1) << self._bucket(index)) - 1
        return value

    def _bucket(self, index: Ints) -> Ints:
        bucket: Ints = np.maximum((index >> self.magnitude) - 1, 0)
        return bucket

    def count(self, values: ArrayLike) -> Ints:
        """A histogram of values up to `highest`: all counters, shape (length,)."""
        return np.bincount(self.index(values), minlength=self.length)

    def at_percentile(self, index: ArrayLike, percentiles: ArrayLike) -> Ints:
        """What hdrhistogram answers when a percentile is reached at counter `index`."""
        return np.where(np.asarray(percentiles) > 0, self.highest_equivalent(index), self.lowest(index))

    def percentiles(self, counts: ArrayLike, percentiles: ArrayLike) -> Ints:
        """The value at each percentile (0 to 100) of the counters, shape (length,) or less; 0 if nothing is counted."""
        reached = np.cumsum(counts, dtype=np.int64)
        if not len(reached) or not reached[-1]:
            return np.zeros(np.shape(percentiles), np.int64)
        return self.at_percentile(np.searchsorted(reached, ranks(reached[-1], percentiles)), percentiles)


def ranks(total: ArrayLike, percentiles: ArrayLike) -> Ints:
    """How many of `total` values have to be counted to reach each percentile, as hdrhistogram rounds it.

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
