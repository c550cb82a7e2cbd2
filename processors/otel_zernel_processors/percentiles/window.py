"""The counts of all series over a rolling window and since the start."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from otel_zernel_processors.percentiles.hdr import Floats, Ints, Layout, ranks
from otel_zernel_processors.percentiles.tally import Growing, Tally


class Counts:
    """A counter of a series has the key `slot * layout.length + index`, so that a series is a range of keys."""

    def __init__(self, layout: Layout, window_ns: int | None, since_start: bool) -> None:
        """A rolling window of `window_ns`, or none for None; and what was counted since the start, if wanted."""
        self.layout = layout
        self._window_ns = window_ns
        self._open = Growing()
        self._closed: deque[tuple[int, Tally]] = deque()
        self._total = Growing() if since_start or window_ns is None else None

    def add(self, slots: Ints, values: Ints, times: Ints | None = None) -> None:
        """Counts each value in its slot, once or `times` times; all of shape (n,)."""
        tally = Tally.of(slots * self.layout.length + self.layout.index(values), times)
        if self._window_ns is not None:
            self._open.add(tally)
        if self._total is not None:
            self._total.add(tally)

    def close(self, now_ns: int) -> None:
        """Ends a step of the rolling window, and forgets the steps that have left it."""
        if self._window_ns is None:
            return
        self._closed.append((now_ns, self._open.settle()))
        self._open = Growing()
        while self._closed[0][0] <= now_ns - self._window_ns:
            self._closed.popleft()

    def forget(self, slots: Ints) -> None:
        """Forgets everything counted in these slots."""
        for growing in filter(None, (self._open, self._total)):
            growing.merged = self._without(slots, growing.settle())
        self._closed = deque((end_ns, self._without(slots, tally)) for end_ns, tally in self._closed)

    def _without(self, slots: Ints, tally: Tally) -> Tally:
        return tally.where(~np.isin(tally.keys // self.layout.length, slots))

    def in_window(self, first: int, end: int) -> Tally:
        """What the slots from `first` up to but not `end` counted in the window."""
        if self._window_ns is None:
            return self.since_start(first, end)
        closed = [tally for _, tally in self._closed]
        return Tally.merge([self.between(tally, first, end) for tally in closed])

    def since_start(self, first: int, end: int) -> Tally:
        """What these slots counted since each began, if the constructor was asked to keep it."""
        return self.between(self._total.settle(), first, end) if self._total else Tally.merge([])

    def between(self, tally: Tally, first: int, end: int) -> Tally:
        """The part of a tally that these slots counted."""
        return tally.between(first * self.layout.length, end * self.layout.length)

    def quantiles(self, tally: Tally, slots: Ints, quantiles: Sequence[float]) -> tuple[Ints, Ints]:
        """The total count of each slot, shape (n,), and its value at each quantile, (n, q); zeros for an empty slot."""
        reached = np.concatenate([[0], np.cumsum(tally.counts)])
        starts, ends = (reached[np.searchsorted(tally.keys, at * self.layout.length)] for at in (slots, slots + 1))
        totals = ends - starts
        percentiles: Floats = np.array(quantiles) * 100
        wanted = starts[:, None] + ranks(totals[:, None], percentiles)
        values = np.zeros(wanted.shape, np.int64)
        some = totals > 0
        at = np.searchsorted(reached[1:], wanted[some])
        values[some] = self.layout.at_percentile(tally.keys[at] % self.layout.length, percentiles)
        return totals, values
