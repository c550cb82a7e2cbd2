"""The counters of a latency histogram, as the BPF side indexes them (bpf/hdr.bpf.h)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

HIGHEST_NS = 3_600_000_000_000
"""One hour; what takes longer counts as one hour."""


@dataclass(frozen=True)
class Layout:
    """HdrHistogram's layout from 1 ns to 1 h."""

    significant_figures: int = 2

    @cached_property
    def magnitude(self) -> int:
        """log2 of the counters per power of two: 7 for two significant digits, 10 for three."""
        return int(2 * 10**self.significant_figures - 1).bit_length() - 1

    @cached_property
    def length(self) -> int:
        """Counters of one histogram."""
        buckets = (HIGHEST_NS >> (self.magnitude + 1)).bit_length() + 1
        return (buckets + 1) << self.magnitude

    def ranges(self, index: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The smallest and the largest ns that each counter counts."""
        bucket = np.maximum((index >> self.magnitude) - 1, 0)
        lowest = (index - (bucket << self.magnitude)) << bucket
        return lowest, lowest + (np.int64(1) << bucket) - 1
