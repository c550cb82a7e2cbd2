"""The counts of all series, over a rolling window or since the start."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from otel_zernel_libraries.histograms.hdr import Floats, HdrLayout, Ints, ranks
from otel_zernel_processors.percentiles.counts.tally import GrowingCounts, SparseCounts


class WindowCounts:
    """The counts of each series. A counter has the key `slot * layout.length + index`: a series is a range of keys."""

    def __init__(self, layout: HdrLayout, steps: int | None) -> None:
        """`steps` is the length of the rolling window: 0 keeps nothing, None everything."""
        self.layout = layout
        self._open = GrowingCounts()
        self._window: deque[SparseCounts] = deque(maxlen=steps or 0)
        self._total = GrowingCounts() if steps is None else None

    def add(self, slots: Ints, values: Ints, times: Ints | None = None) -> None:
        """Counts each value in its slot, once or `times` times; all of shape (n,)."""
        self._open.add(SparseCounts.of(slots * self.layout.length + self.layout.index(values), times))

    def close(self) -> SparseCounts:
        """Ends a step: its values become readable, and the window moves by one step. Returns the step."""
        step, self._open = self._open.settle(), GrowingCounts()
        self._window.append(step)
        if self._total is not None:
            self._total.add(step)
        return step

    def forget(self, slots: Ints) -> None:
        """Removes the counts of these slots from all closed steps."""
        self._window = deque((self._without(slots, step) for step in self._window), self._window.maxlen)
        if self._total is not None:
            self._total.merged = self._without(slots, self._total.settle())

    def _without(self, slots: Ints, counted: SparseCounts) -> SparseCounts:
        return counted.where(~np.isin(counted.keys // self.layout.length, slots))

    def size(self) -> int:
        """The number of counters to read for the quantiles of all slots."""
        return sum(len(step.keys) for step in self._window) + len(self._total or ())

    def in_window(self, first: int, end: int) -> SparseCounts:
        """The counts of the slots from `first` to before `end` in the window."""
        if self._total is not None:
            return self.of_slots(self._total, first, end)
        return SparseCounts.merge([self.of_slots(step, first, end) for step in self._window])

    def of_slots(self, counted: SparseCounts | GrowingCounts, first: int, end: int) -> SparseCounts:
        """Those of the counts that belong to the slots from `first` to before `end`."""
        return counted.between(first * self.layout.length, end * self.layout.length)

    def spans(self, counted: SparseCounts, slots: Ints) -> tuple[Ints, Ints]:
        """The start and end index of the keys of each slot, each of shape (n,)."""
        starts, ends = (np.searchsorted(counted.keys, at * self.layout.length) for at in (slots, slots + 1))
        return starts, ends

    def quantiles(self, counted: SparseCounts, slots: Ints, quantiles: Sequence[float]) -> tuple[Ints, Ints]:
        """The count of each slot, shape (n,), and its value at each quantile, shape (n, q). An empty slot has zeros."""
        reached = np.concatenate([[0], np.cumsum(counted.counts)])
        starts, ends = (reached[at] for at in self.spans(counted, slots))
        totals = ends - starts
        percentiles: Floats = np.array(quantiles) * 100
        wanted = starts[:, None] + ranks(totals[:, None], percentiles)
        wanted = np.minimum(wanted, ends[:, None])  # ranks of huge totals are rounded
        values = np.zeros(wanted.shape, np.int64)
        some = totals > 0
        at = np.searchsorted(reached[1:], wanted[some])
        values[some] = self.layout.at_percentile(counted.keys[at] % self.layout.length, percentiles)
        return totals, values
