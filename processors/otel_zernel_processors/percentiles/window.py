"""The counts of all series over a rolling window and since the start."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from otel_zernel.otlp.histograms import Floats, HdrLayout, Ints, ranks
from otel_zernel_processors.percentiles.tally import Growing, Tally


class Counts:
    """A counter of a series has the key `slot * layout.length + index`, so that a series is a range of keys."""

    def __init__(self, layout: HdrLayout, steps: int | None, since_start: bool) -> None:
        """A rolling window of so many steps, or none; and what was counted since the start, if wanted."""
        self.layout = layout
        self._open = Growing()
        self._window: deque[Tally] | None = None if steps is None else deque(maxlen=steps)
        self._total = Growing() if since_start or steps is None else None

    def add(self, slots: Ints, values: Ints, times: Ints | None = None) -> None:
        """Counts each value in its slot, once or `times` times; all of shape (n,)."""
        self._open.add(Tally.of(slots * self.layout.length + self.layout.index(values), times))

    def close(self) -> None:
        """Ends a step: what was added from the last one on can be read now, and the window moves on by one."""
        step, self._open = self._open.settle(), Growing()
        if self._window is not None:
            self._window.append(step)
        if self._total is not None:
            self._total.add(step)

    def forget(self, slots: Ints) -> None:
        """Forgets everything counted in these slots up to the last step."""
        if self._window is not None:
            self._window = deque((self._without(slots, step) for step in self._window), self._window.maxlen)
        if self._total is not None:
            self._total.merged = self._without(slots, self._total.settle())

    def _without(self, slots: Ints, tally: Tally) -> Tally:
        return tally.where(~np.isin(tally.keys // self.layout.length, slots))

    def size(self) -> int:
        """How many counters have to be read for the quantiles of all slots."""
        if self._window is not None:
            return sum(len(step.keys) for step in self._window)
        return len(self._total or ())

    def in_window(self, first: int, end: int) -> Tally:
        """What the slots from `first` up to but not `end` counted in the window."""
        if self._window is None:
            return self.since_start(first, end)
        return Tally.merge([self._between(step, first, end) for step in self._window])

    def since_start(self, first: int, end: int) -> Tally:
        """What these slots counted since each began, if the constructor was asked to keep it."""
        return self._between(self._total, first, end) if self._total is not None else Tally.merge([])

    def _between(self, tally: Tally | Growing, first: int, end: int) -> Tally:
        return tally.between(first * self.layout.length, end * self.layout.length)

    def spans(self, tally: Tally, slots: Ints) -> tuple[Ints, Ints]:
        """Where the keys of each slot start and end in the tally, each of shape (n,)."""
        starts, ends = (np.searchsorted(tally.keys, at * self.layout.length) for at in (slots, slots + 1))
        return starts, ends

    def middles(self, tally: Tally) -> Floats:
        """The middle of the values that each key counts."""
        index = tally.keys % self.layout.length
        return (self.layout.lowest(index) + self.layout.highest_equivalent(index)) / 2

    def quantiles(self, tally: Tally, slots: Ints, quantiles: Sequence[float]) -> tuple[Ints, Ints]:
        """The total count of each slot, shape (n,), and its value at each quantile, (n, q); zeros for an empty slot."""
        reached = np.concatenate([[0], np.cumsum(tally.counts)])
        starts, ends = (reached[at] for at in self.spans(tally, slots))
        totals = ends - starts
        percentiles: Floats = np.array(quantiles) * 100
        wanted = starts[:, None] + ranks(totals[:, None], percentiles)
        wanted = np.minimum(wanted, ends[:, None])  # ranks of huge totals are rounded
        values = np.zeros(wanted.shape, np.int64)
        some = totals > 0
        at = np.searchsorted(reached[1:], wanted[some])
        values[some] = self.layout.at_percentile(tally.keys[at] % self.layout.length, percentiles)
        return totals, values
