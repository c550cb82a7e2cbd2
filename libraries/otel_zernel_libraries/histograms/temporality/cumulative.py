"""Delta to cumulative: adds up the deltas of each series."""

from typing import Any

from otel_zernel.health import REPEATED
from otel_zernel_libraries.histograms.amounts import Amount
from otel_zernel_libraries.histograms.temporality.conversion import CUMULATIVE, DELTA, Conversion, LostPoint
from otel_zernel_libraries.histograms.temporality.track import DeltaTrack


class ToCumulative(Conversion[DeltaTrack]):
    """The total of each series starts at the start of its first delta. After an overflow it starts again.

    A late delta that fits into a gap between others is added without a point of its own, since a point must not be
    older than the previous one: the next point has it. Any other late delta is dropped: it was counted
    before, or another sender shares the series. If all deltas have been late for a minute, the sender's clock was set
    back, and the series goes on at the earlier time.
    """

    source = DELTA
    target = CUMULATIVE
    counts_dropped = True

    def convert_point(self, series: bytes, point: Any, amount: Amount, now_ns: int) -> bool:
        before, end, delta = self._memory.get(series), point.time_unix_nano, hash(point.SerializeToString())
        track, is_late = before, False
        if track is None:
            if self._memory.is_full:
                raise LostPoint("max_series")
            track = DeltaTrack(amount, point.start_time_unix_nano or end, end)
        elif end > track.end_ns:
            track = _with_next(track, point, amount)
        elif track.is_set_back(now_ns):
            track = _set_back(track, point, amount)
        else:
            if end and delta in track.counted:
                raise LostPoint(REPEATED)
            track, is_late = _with_late(track, point, amount), True
        track.count(before, delta)
        self._memory.set(series, track, now_ns)
        if is_late:
            return False
        point.start_time_unix_nano = track.start_ns
        track.amount.write(point)
        return True


def _with_next(track: DeltaTrack, point: Any, amount: Amount) -> DeltaTrack:
    start, end = point.start_time_unix_nano or track.end_ns, point.time_unix_nano
    total = track.amount.plus(amount)
    if total is None:
        return DeltaTrack(amount, start, end)
    following = DeltaTrack(total, track.start_ns, end)
    following.gaps = track.with_gap(start)
    return following


def _with_late(track: DeltaTrack, point: Any, amount: Amount) -> DeltaTrack:
    """Raises `LostPoint` if the delta fits into no gap."""
    start, end = point.start_time_unix_nano, point.time_unix_nano
    total = track.amount.plus(amount) if start and track.is_free(start, end) else None
    if total is None:
        raise LostPoint("out_of_order")
    same = DeltaTrack(total, track.start_ns, track.end_ns)
    same.gaps, same.late_since_ns = track.without(start, end), track.late_since_ns
    return same


def _set_back(track: DeltaTrack, point: Any, amount: Amount) -> DeltaTrack:
    start, end = point.start_time_unix_nano or point.time_unix_nano, point.time_unix_nano
    total = track.amount.plus(amount)
    return DeltaTrack(amount, start, end) if total is None else DeltaTrack(total, min(track.start_ns, start), end)
