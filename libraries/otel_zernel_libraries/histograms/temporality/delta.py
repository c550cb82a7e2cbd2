"""Cumulative to delta: subtracts the previous point of each series."""

from typing import Any

from otel_zernel.clock import Clock
from otel_zernel_libraries.histograms.amounts import Amount
from otel_zernel_libraries.histograms.temporality.conversion import CUMULATIVE, DELTA, Conversion, LostPoint
from otel_zernel_libraries.histograms.temporality.memory import SeriesMemoryConfig
from otel_zernel_libraries.histograms.temporality.track import Track


class ToDelta(Conversion[Track]):
    """The first point of a series counts as a whole if the series began after this conversion, else it is the baseline.

    So does otelcol's cumulativetodelta. A decrease, or a start after the previous point, is a reset: the whole point
    counts. Sums that are not monotonic stay cumulative, as in the SDKs. If all points have been late for a minute, the
    sender's clock was set back, and the series goes on at the earlier time.
    """

    source = CUMULATIVE
    target = DELTA
    counts_dropped = False

    def __init__(self, config: SeriesMemoryConfig, clock: Clock) -> None:
        super().__init__(config, clock)
        self._began_ns = clock.time_ns()

    def converts(self, kind: str, *, monotonic: bool) -> bool:
        return monotonic and super().converts(kind, monotonic=monotonic)

    def convert_point(self, series: bytes, point: Any, amount: Amount, now_ns: int) -> bool:
        track, start, end = self._memory.get(series), point.start_time_unix_nano, point.time_unix_nano
        if track is None and self._memory.is_full:
            raise LostPoint("max_series")
        if track is not None and end <= track.end_ns and not track.is_set_back(now_ns):
            raise LostPoint("out_of_order")
        self._memory.set(series, Track(amount, start, end), now_ns)
        if track is None:
            return bool(start > self._began_ns)
        increase = track.increase(amount, start)
        since = track.end_ns if track.end_ns < end else start
        if increase is None:
            point.start_time_unix_nano = max(start, since)
        else:
            point.start_time_unix_nano = since
            increase.write(point)
        return True
