"""Turns cumulative histograms into what was added since their last point."""

from collections.abc import Hashable
from dataclasses import dataclass

from otel_zernel_processors.percentiles.distribution import HistogramState


@dataclass(slots=True)
class _Last:
    distribution: HistogramState
    start_ns: int
    seen_ns: int


class CumulativeDifferences:
    """The last state of each cumulative series."""

    def __init__(self, max_series: int) -> None:
        self._max_series = max_series
        self._last: dict[Hashable, _Last] = {}
        self._began_ns: int | None = None

    def added(self, series: Hashable, now: HistogramState, start_ns: int, now_ns: int) -> HistogramState | None:
        """What was added since the series' last point.

        After a reset that is all of it. Of a series seen for the first time it is all if it began after we did, else
        nothing, as in otelcol's cumulativetodelta. None if there is no room for one series more.
        """
        if self._began_ns is None:
            self._began_ns = now_ns
        last = self._last.get(series)
        if last is None and len(self._last) >= self._max_series:
            return None
        self._last[series] = _Last(now, start_ns, now_ns)
        if last is None:
            return now if start_ns > self._began_ns else now.nothing()
        added = now.since(last.distribution) if start_ns == last.start_ns else None
        return now if added is None else added

    def end(self, series: Hashable) -> None:
        """Forgets a series of which no more points will come."""
        self._last.pop(series, None)

    def expire(self, before_ns: int) -> None:
        """Forgets the series whose last point is older."""
        self._last = {series: last for series, last in self._last.items() if last.seen_ns >= before_ns}
