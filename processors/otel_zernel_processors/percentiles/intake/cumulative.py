"""Converts cumulative histograms to the increase since their previous point."""

from collections.abc import Hashable

from otel_zernel_libraries.histograms.amounts import NotComparable
from otel_zernel_libraries.histograms.temporality.track import Track, amount_of
from otel_zernel_processors.percentiles.intake.distribution import HistogramPoint, HistogramState


class CumulativeDifferences:
    """The previous point of each cumulative series."""

    def __init__(self, max_series: int, began_ns: int) -> None:
        """`began_ns` is the start of the processor, in ns since 1970."""
        self._max_series = max_series
        self._began_ns = began_ns
        self._last: dict[Hashable, Track] = {}

    def increase(self, series: Hashable, point: HistogramPoint, now_ns: int) -> HistogramState | None:
        """The increase since the previous point of the series; None if there are `max_series` already.

        After a reset, the increase is the whole point. So it is for the first point of a series that started after the
        processor; for older series it is empty, as in otelcol's cumulativetodelta. Raises `MalformedAmount`, and
        `ValueError` if the point's fields contradict each other.
        """
        state, amount, start_ns = HistogramState.of(point), amount_of(point), point.start_time_unix_nano
        last = self._last.get(series)
        if last is None and len(self._last) >= self._max_series:
            return None
        self._last[series] = Track(amount, start_ns, point.time_unix_nano)
        self._last[series].updated_ns = now_ns
        if last is None:
            return state if start_ns > self._began_ns else state.emptied()
        try:
            increase = last.increase(amount, start_ns)
        except NotComparable:
            return state.emptied()
        if increase is None:
            return state
        gained = type(point)()
        increase.write(gained)
        for limit in ("min", "max"):  # the new values lie between the extremes of all values
            if point.HasField(limit):
                setattr(gained, limit, getattr(point, limit))
        return HistogramState.of(gained)

    def end(self, series: Hashable) -> None:
        """Forgets a series that has ended."""
        self._last.pop(series, None)

    def expire(self, before_ns: int) -> None:
        """Forgets series whose previous point is older."""
        self._last = {series: last for series, last in self._last.items() if last.updated_ns >= before_ns}
