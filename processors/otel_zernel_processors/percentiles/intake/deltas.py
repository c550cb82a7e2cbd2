"""Recognises deltas that were counted before: a sender repeats a request whose answer was lost."""

from collections.abc import Hashable

from otel_zernel.temporality.reading import amount_of
from otel_zernel.temporality.track import DeltaTrack
from otel_zernel_processors.percentiles.intake.distribution import HistogramPoint


class DeltaIntervals:
    """The intervals that the deltas of each series have covered. The rule is that of `temporality.cumulative`."""

    def __init__(self, max_series: int) -> None:
        self._max_series = max_series
        self._tracks: dict[Hashable, DeltaTrack] = {}

    def problem(self, series: Hashable, point: HistogramPoint, now_ns: int) -> str | None:
        """The reason to drop the delta; None if it is new, and covered from now on.

        A delta without a time is always new. If all deltas of a series have been late for a minute, its clock was set
        back.
        """
        start, end = point.start_time_unix_nano, point.time_unix_nano
        if not end:
            return None
        track = self._tracks.get(series)
        if track is None:
            if len(self._tracks) >= self._max_series:
                return "max_series"
            track = self._tracks[series] = DeltaTrack(amount_of(point), start or end, end)
        elif end > track.end_ns:
            track.gaps, track.end_ns, track.late_since_ns = track.with_gap(start or track.end_ns), end, None
        elif track.is_set_back(now_ns):
            track.end_ns, track.late_since_ns = end, None
        elif start and track.is_free(start, end):
            track.gaps = track.without(start, end)
        else:
            return "out_of_order"
        track.updated_ns = now_ns
        return None

    def end(self, series: Hashable) -> None:
        """Forgets a series that has ended."""
        self._tracks.pop(series, None)

    def expire(self, before_ns: int) -> None:
        """Forgets series whose last delta is older."""
        self._tracks = {series: track for series, track in self._tracks.items() if track.updated_ns >= before_ns}
