"""The counters of many histograms in one sparse table: only non-zero counters take memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from otel_zernel_libraries.histograms.hdr import Ints

_DENSE = 8  # bincount is faster than sorting up to this many possible keys for each value
_WAITING = 100_000  # keys that wait in any case; merging them takes some ms


@dataclass(frozen=True, slots=True)
class SparseCounts:
    """The count of each key. `keys` are distinct and increasing; `keys` and `counts` have the shape (n,)."""

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
        flatnonzero = np.flatnonzero(dense)
        return cls(flatnonzero + lowest, dense[flatnonzero])

    @classmethod
    def merge(cls, parts: Sequence["SparseCounts"]) -> "SparseCounts":
        """The sum of all counts."""
        if len(parts) == 1:
            return parts[0]
        empty = [np.empty(0, np.int64)]
        keys = np.concatenate([counts.keys for counts in parts] or empty)
        return _sum_equal(keys, np.concatenate([counts.counts for counts in parts] or empty))

    def between(self, first: int, end: int) -> "SparseCounts":
        """The counts of the keys from `first` to before `end`."""
        start, stop = np.searchsorted(self.keys, (first, end))
        return SparseCounts(self.keys[start:stop], self.counts[start:stop])

    def where(self, keep: NDArray[np.bool_]) -> "SparseCounts":
        """The counts of the keys for which `keep`, of shape (n,), is true."""
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
    """Counts with many additions. Additions wait, and are merged once they are as many as the merged keys."""

    merged: SparseCounts = field(default_factory=lambda: SparseCounts.merge([]))
    waiting: list[SparseCounts] = field(default_factory=list)
    waiting_keys: int = 0

    def __len__(self) -> int:
        return len(self.merged.keys) + self.waiting_keys

    def add(self, counts: SparseCounts) -> None:
        self.waiting.append(counts)
        self.waiting_keys += len(counts.keys)
        if self.waiting_keys > max(len(self.merged.keys), _WAITING):
            self.settle()

    def settle(self) -> SparseCounts:
        """Merges all additions. Returns the counts."""
        if self.waiting:
            self.merged = SparseCounts.merge([self.merged, *self.waiting])
            self.waiting = []
            self.waiting_keys = 0
        return self.merged

    def between(self, first: int, end: int) -> SparseCounts:
        """The counts of the keys from `first` to before `end`, without merging the others."""
        return SparseCounts.merge([counts.between(first, end) for counts in (self.merged, *self.waiting)])
