"""The values of each series since its start, in the buckets of an exponential histogram.

Bucket i counts the values in (base^i, base^(i+1)] with base = 2^(2^-scale). Decreasing the scale by 1 merges each pair
of neighbouring buckets, so indexes at the finest scale, shifted, are the indexes at any other.
"""

from dataclasses import dataclass

import numpy as np

from otel_zernel_libraries.histograms.hdr import Floats, HdrLayout, Ints
from otel_zernel_processors.percentiles.counts.tally import SparseCounts

MOST_BUCKETS = 160
"""Buckets of a series: the default of the OpenTelemetry SDKs."""
_FINEST = 20  # the finest scale of the OpenTelemetry SDKs
_NONE = 2**62  # beyond every index


@dataclass(frozen=True, slots=True)
class ExponentialCounts:
    """The counts of one series."""

    scale: int
    offset: int
    """The index of the first bucket."""
    counts: Ints
    """From the first to the last bucket with a value; shape (n,)."""
    zeros: int
    """The number of values below the resolution."""
    lowest: float
    highest: float
    """The extremes, in the unit of the metric. Without a value, infinite."""


class ExponentialTotals:
    """A row of at most 160 buckets for each slot, as fine as the range of its values allows."""

    def __init__(self, layout: HdrLayout, slots: int) -> None:
        self._layout = layout
        # It grows with the slots in use: of an array of 4 MB and more, NumPy uses huge pages of 2 MB.
        self._counts = np.zeros((0, MOST_BUCKETS), np.int64)
        self._zeros = np.zeros(slots, np.int64)
        self._shift = np.zeros(slots, np.int64)
        self._first, self._last = np.full(slots, _NONE), np.full(slots, -_NONE)
        """The indexes of the smallest and the largest value at the finest scale."""
        self._lowest = np.full(slots, np.inf)
        self._highest = np.full(slots, -np.inf)

    def add(self, step: SparseCounts, per_unit: Floats) -> None:
        """Adds counts with the keys of `WindowCounts`. `per_unit`, by slot: the integers in one unit of the metric."""
        if not len(step.keys):
            return
        slots, index = np.divmod(step.keys, self._layout.length)
        if (needed := int(slots[-1]) + 1) > len(self._counts):
            more = max(needed, min(2 * needed, len(self._zeros))) - len(self._counts)
            self._counts = np.concatenate((self._counts, np.zeros((more, MOST_BUCKETS), np.int64)))
        scale = per_unit[slots]
        low, high = self._layout.lowest(index) / scale, self._layout.highest_equivalent(index) / scale
        present, begins, ends = _spans(slots)
        self._lowest[present] = np.minimum(self._lowest[present], low[begins])
        self._highest[present] = np.maximum(self._highest[present], high[ends])
        is_zero = index == 0
        np.add.at(self._zeros, slots[is_zero], step.counts[is_zero])
        if not is_zero.all():
            some = ~is_zero
            self._add_positive(slots[some], (low[some] + high[some]) / 2, step.counts[some])

    def _add_positive(self, slots: Ints, values: Floats, counts: Ints) -> None:
        """Adds values of ascending slots, ascending in each slot; all of shape (n,)."""
        fine = np.ceil(np.ldexp(np.log2(values), _FINEST)).astype(np.int64) - 1
        present, begins, ends = _spans(slots)
        first, last = np.minimum(self._first[present], fine[begins]), np.maximum(self._last[present], fine[ends])
        self._move(present, first, _needed(self._shift[present], first, last))
        self._first[present], self._last[present] = first, last
        shift = self._shift[slots]
        np.add.at(self._counts, (slots, (fine >> shift) - (self._first[slots] >> shift)), counts)

    def _move(self, slots: Ints, first: Ints, shift: Ints) -> None:
        """Moves the counts of the slots to rows that begin with the bucket of `first`, at a scale lower by `shift`."""
        former = self._first[slots] >> self._shift[slots]
        moved = np.flatnonzero((shift != self._shift[slots]) | (first >> shift != former))
        rows = self._counts[slots[moved]]
        row, column = np.nonzero(rows)
        of_row = moved[row]
        index = (former[of_row] + column) >> (shift[of_row] - self._shift[slots[of_row]])
        empty = np.zeros_like(rows)
        np.add.at(empty, (row, index - (first[of_row] >> shift[of_row])), rows[row, column])
        self._counts[slots[moved]] = empty
        self._shift[slots] = shift

    def forget(self, slots: Ints) -> None:
        """Empties the slots."""
        self._counts[slots[slots < len(self._counts)]] = 0
        self._zeros[slots], self._shift[slots] = 0, 0
        self._first[slots], self._last[slots] = _NONE, -_NONE
        self._lowest[slots], self._highest[slots] = np.inf, -np.inf

    def of(self, slot: int) -> ExponentialCounts:
        """The counts of a slot."""
        shift, first, last = int(self._shift[slot]), int(self._first[slot]), int(self._last[slot])
        length = (last >> shift) - (first >> shift) + 1 if first <= last else 0
        return ExponentialCounts(
            _FINEST - shift,
            first >> shift if length else 0,
            self._counts[slot, :length] if length else np.empty(0, np.int64),
            int(self._zeros[slot]),
            float(self._lowest[slot]),
            float(self._highest[slot]),
        )


def _spans(slots: Ints) -> tuple[Ints, Ints, Ints]:
    """The distinct slots of ascending ones, and the first and the last position of each."""
    begins = np.flatnonzero(np.diff(slots, prepend=-1))
    return slots[begins], begins, np.append(begins[1:], len(slots)) - 1


def _needed(shift: Ints, first: Ints, last: Ints) -> Ints:
    """The least shifts, from the given ones on, at which the indexes span at most 160 buckets."""
    shift = shift.copy()
    while (too_many := (last >> shift) - (first >> shift) >= MOST_BUCKETS).any():
        shift += too_many
    return shift
