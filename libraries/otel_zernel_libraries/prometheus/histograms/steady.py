"""Cumulative counts at classic bounds that never decrease while their sender goes on."""

from array import array
from collections.abc import Sequence

from otel_zernel_libraries.histograms.restarts import begins_again
from otel_zernel_libraries.prometheus.histograms.bounds import Bounds


class SteadyTotals:
    """The counts of one exponential histogram at classic bounds.

    A coarser bucket counts at a higher bound, so the count up to the bounds below it would decrease. Prometheus would
    read that as a restart, and add the whole count once more. The former count is true, too: so many values, at least,
    are not above the bound.
    """

    __slots__ = ("_bounds", "_start", "_time", "_totals")

    def __init__(self) -> None:
        self._bounds: Bounds | None = None
        self._totals = array("Q")
        self._start = self._time = 0

    def of(self, bounds: Bounds, totals: list[int], start: int, time: int) -> list[int]:
        """The counts of the next point, shape (n + 1,). `start` and `time` are the point's, both in the same unit."""
        if time < self._time:
            return totals
        if self._bounds is bounds and not self._begins_again(totals, start):
            totals = [*map(max, totals, self._totals)]
        self._bounds, self._totals, self._start, self._time = bounds, array("Q", totals), start, time
        return totals

    def _begins_again(self, totals: Sequence[int], start: int) -> bool:
        return totals[-1] < self._totals[-1] or begins_again(start, self._start, self._time)
