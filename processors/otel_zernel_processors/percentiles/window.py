"""The counts of all series, over a rolling window and since the start."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from otel_zernel.otlp.histograms import Floats, HdrLayout, Ints, ranks
from otel_zernel_processors.percentiles.tally import GrowingCounts, SparseCounts


class WindowCounts:
    """The counts of each series. A counter has the key `slot * layout.length + index`: a series is a range of keys."""

    def __init__(self, layout: HdrLayout, steps: int | None, since_start: bool) -> None:
        """`steps` is the length of the rolling window; None for no window. `since_start` also keeps the totals."""
        self.layout = layout
        self._open = GrowingCounts()
        self._window: deque[SparseCounts] | None = None if steps is None else deque(maxlen=steps)
        self._total = GrowingCounts() if since_start or steps is None else None

    def add(self, slots: Ints, values: Ints, times: Ints | None = None) -> None:
        """Counts each value in its slot, once or `times` times; all of shape (n,)."""
        self._open.add(SparseCounts.of(slots * self.layout.length + self.layout.index(values), times))

    def close(self) -> None:
        """Ends a step: its values become readable, and the window moves by one step."""
        step, self._open = self._open.settle(), GrowingCounts()
        if self._window is not None:
            self._window.append(step)
        if self._total is not None:
            self._total.add(step)

    def forget(self, slots: Ints) -> None:
        """Removes the counts of these slots from all closed steps."""
        if self._window is not None:
            self._window = deque((self._without(slots, step) for step in self._window), self._window.maxlen)
        if self._total is not None:
            self._total.merged = self._without(slots, self._total.settle())

    def _without(self, slots: Ints, counted: SparseCounts) -> SparseCounts:
        return counted.where(~np.isin(counted.keys // self.layout.length, slots))

    def size(self) -> int:
        """The number of counters to read for the quantiles of all slots."""
        if self._window is not None:
            return sum(len(step.keys) for step in self._window)
        return len(self._total or ())

    def in_window(self, first: int, end: int) -> SparseCounts:
        """The counts of the slots from `first` to before `end` in the window."""
        if self._window is None:
            return self.since_start(first, end)
        return SparseCounts.merge([self._between(step, first, end) for step in self._window])

    def since_start(self, first: int, end: int) -> SparseCounts:
        """The counts of these slots since each began; empty if they are not kept."""
        return self._between(self._total, first, end) if self._total is not None else SparseCounts.merge([])

    def _between(self, counted: SparseCounts | GrowingCounts, first: int, end: int) -> SparseCounts:
        return counted.between(first * self.layout.length, end * self.layout.length)

    def spans(self, counted: SparseCounts, slots: Ints) -> tuple[Ints, Ints]:
        """The start and end index of the keys of each slot, each of shape (n,)."""
        starts, ends = (np.searchsorted(counted.keys, at * self.layout.length) for at in (slots, slots + 1))
        return starts, ends

    def middles(self, counted: SparseCounts) -> Floats:
        """The middle of the value range of each key."""
        index = counted.keys % self.layout.length
        return (self.layout.lowest(index) + self.layout.highest_equivalent(index)) / 2

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
