"""Converts cumulative histograms to the increase since their previous point."""

from collections.abc import Hashable
from dataclasses import dataclass

from otel_zernel_processors.percentiles.intake.distribution import HistogramState


@dataclass(slots=True)
class _Previous:
    state: HistogramState
    start_ns: int
    received_ns: int


class CumulativeDifferences:
    """The previous state of each cumulative series."""

    def __init__(self, max_series: int, began_ns: int) -> None:
        """`began_ns` is the start of the processor, in ns since 1970."""
        self._max_series = max_series
        self._began_ns = began_ns
        self._last: dict[Hashable, _Previous] = {}

    def increase(self, series: Hashable, now: HistogramState, start_ns: int, now_ns: int) -> HistogramState | None:
        """The increase since the previous point of the series; None if there are `max_series` already.

        After a reset, the increase is the whole point. So it is for the first point of a series that started after the
        processor; for older series it is empty, as in otelcol's cumulativetodelta.
        """
        last = self._last.get(series)
        if last is None and len(self._last) >= self._max_series:
            return None
        self._last[series] = _Previous(now, start_ns, now_ns)
        if last is None:
            return now if start_ns > self._began_ns else now.emptied()
        increase = now.since(last.state) if start_ns == last.start_ns else None
        return now if increase is None else increase

    def end(self, series: Hashable) -> None:
        """Forgets a series that has ended."""
        self._last.pop(series, None)

    def expire(self, before_ns: int) -> None:
        """Forgets series whose previous point is older."""
        self._last = {series: last for series, last in self._last.items() if last.received_ns >= before_ns}
