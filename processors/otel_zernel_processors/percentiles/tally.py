"""Counters of many histograms in one sparse table: only counters that count something take room."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from otel_zernel.otlp.histograms import Ints

_DENSE = 8  # counting by bincount beats sorting while there are at most so many possible keys a value
_WAITING = 100_000  # keys that may wait in any case; merging them takes some ms


@dataclass(frozen=True, slots=True)
class SparseCounts:
    """How often each key was counted: `keys` ascending and distinct, `counts` of the same shape (n,)."""

    keys: Ints
    counts: Ints

    @classmethod
    def of(cls, keys: Ints, weights: Ints | None = None) -> "SparseCounts":
        """Counts the keys, each once or `weights` times."""
        if weights is not None:
            return _sum_equal(keys, weights)
        lowest, span = (keys.min(), np.ptp(keys)) if len(keys) else (0, 0)
        if span >= _DENSE * len(keys):
            return cls(*np.unique(keys, return_counts=True))
        dense = np.bincount(keys - lowest)
        found = np.flatnonzero(dense)
        return cls(found + lowest, dense[found])

    @classmethod
    def merge(cls, tallies: Sequence["SparseCounts"]) -> "SparseCounts":
        """All counts together."""
        if len(tallies) == 1:
            return tallies[0]
        empty = [np.empty(0, np.int64)]
        keys = np.concatenate([tally.keys for tally in tallies] or empty)
        return _sum_equal(keys, np.concatenate([tally.counts for tally in tallies] or empty))

    def between(self, first: int, end: int) -> "SparseCounts":
        """The keys from `first` up to but not `end`."""
        start, stop = np.searchsorted(self.keys, (first, end))
        return SparseCounts(self.keys[start:stop], self.counts[start:stop])

    def where(self, keep: NDArray[np.bool_]) -> "SparseCounts":
        """The keys for which `keep`, shape (n,), is true."""
        return SparseCounts(self.keys[keep], self.counts[keep])


def _sum_equal(keys: Ints, counts: Ints) -> SparseCounts:
    if not len(keys):
        return SparseCounts(keys, counts)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    return SparseCounts(keys[starts], np.add.reduceat(counts[order], starts))


@dataclass(slots=True)
class GrowingCounts:
    """A tally that is added to often: what is added waits until it is as much as what is there, and is merged then."""

    merged: SparseCounts = field(default_factory=lambda: SparseCounts.merge([]))
    waiting: list[SparseCounts] = field(default_factory=list)
    waiting_keys: int = 0

    def __len__(self) -> int:
        return len(self.merged.keys) + self.waiting_keys

    def add(self, tally: SparseCounts) -> None:
        self.waiting.append(tally)
        self.waiting_keys += len(tally.keys)
        if self.waiting_keys > max(len(self.merged.keys), _WAITING):
            self.settle()

    def settle(self) -> SparseCounts:
        """The tally, with everything merged."""
        if self.waiting:
            self.merged = SparseCounts.merge([self.merged, *self.waiting])
            self.waiting, self.waiting_keys = [], 0
        return self.merged

    def between(self, first: int, end: int) -> SparseCounts:
        """As `SparseCounts.between`, merging no more than that."""
        return SparseCounts.merge([tally.between(first, end) for tally in (self.merged, *self.waiting)])
