"""The time on one host: the latest timestamp in its data, not that of the collector's clock, and the watermark."""

from collections.abc import Sequence

from otel_zernel.clock import Clock
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.intake.intervals import ThreadInterval

_AHEAD_NS = 60_000_000_000
"""How far a timestamp may be ahead of the host's time and of the collector's clock. One wrong timestamp in the future
would make all later data late. If the first timestamp of the host is ahead of the collector's clock, the host may stay
that far ahead."""
_DAY_NS = 86_400_000_000_000
"""If the host is ahead by more than a day, its clock is unrelated to the collector's, and this is the bound."""


class HostClock:
    """Advances with the timestamps in the data of one host. All times are ns since 1970."""

    def __init__(self, clock: Clock, patience_ns: int, *, is_replay: bool = False) -> None:
        """`clock` is the collector's. If every timestamp is too far ahead for `patience_ns`, accept them.

        `is_replay`: the times of the data are unrelated to the collector's clock.
        """
        self._clock = clock
        self._patience_ns = patience_ns
        self._is_replay = is_replay
        self.now = self.since = 0
        """The latest and the first accepted timestamp."""
        self.heard = 0
        """The same as `now`, which others may advance while no data arrives."""
        self._latest = self._ahead = self._refused_since = self._quiet_since = 0
        self._data = self._data_arrived = 0
        """The latest timestamp in the data, and when it arrived by the collector's clock."""

    def accept(self, start: int, end: int) -> bool:
        """Advances to `end`; False, without an effect, if `end` is too far ahead. The first timestamp is always
        accepted, and `start` becomes the host's first time."""
        if end > self.now:
            if end > self._latest and not self._is_plausible(end):
                return False
            self.since, self.now, self._refused_since = self.since or start, end, 0
        if end > self._data:
            self._data, self._data_arrived = end, self._clock.time_ns()
        self._quiet_since = 0
        self.heard = max(self.heard, end)
        return True

    def accepted(self, intervals: Sequence[ThreadInterval]) -> Sequence[ThreadInterval]:
        """Advances with these intervals; returns those that it accepts. If it accepts the latest, it accepts all."""
        if intervals and not self.now:
            self.accept(intervals[0].start, intervals[0].end)
        if intervals and self.accept(intervals[0].start, max([interval.end for interval in intervals])):
            return intervals
        return [interval for interval in intervals if self.accept(interval.start, interval.end)]

    def follow_replay(self, wall: int, pace: float, spare_ns: int, most_ns: int) -> None:
        """Advances while no data arrives: by `pace` seconds for each second, less `spare_ns` of the data's time.

        `wall` is the collector's time. It stops `most_ns` after the data: the replay has ended, and its state stays.
        """
        passed = round((wall - self._data_arrived) * pace) - round(spare_ns * max(pace, 1.0))
        self.now = max(self.now, self._data + min(passed, most_ns))

    def quiet_ns(self, wall: int) -> int:
        """How long no data has arrived, by the collector's time `wall`, counted from the first such question."""
        self._quiet_since = self._quiet_since or wall
        return wall - self._quiet_since

    def _is_plausible(self, time: int) -> bool:
        wall = self._clock.time_ns()
        if not self.now:
            self._latest, self._ahead = time, max(time - wall, 0)
            return True
        bound = _DAY_NS if self._is_replay or self._ahead >= _DAY_NS else _AHEAD_NS
        self._latest = max(self.now, wall + self._ahead) + bound
        if time <= self._latest:
            return True
        self._refused_since = self._refused_since or wall
        return wall - self._refused_since > self._patience_ns


class Watermark:
    """The time up to which all data of a host, lost events included, has arrived.

    A receiver reports lost events only with its next reading of the counters, so the watermark waits for that reading.
    It follows the readings by the metric `zernel.reading.sequence`.

    The data of a reading may arrive in several batches and in any order. It is complete once the next reading arrives.
    Without readings, or once they stop, the watermark only waits for `lateness`.
    """

    def __init__(self, config: PhasesConfig) -> None:
        self._lateness = ns(config.lateness)
        self._longest = ns(config.idle_timeout)
        self._before = self._last = 0

    def add_reading(self, start: int, time: int) -> None:
        """Records a reading at `time` (ns) whose data begins at `start` (ns; 0 if unknown: at the reading before).

        Its sequence number does not matter: the first one, a lower one after a restart and one after a gap are all
        readings.
        """
        if time > self._last:
            self._before, self._last = start or self._last, time

    def at(self, now: int) -> int:
        """The watermark (ns) when the host's clock shows `now` (ns). Data from before that arrives later is late."""
        until = now - self._lateness
        pause = min(self._last - self._before, self._longest)
        stopped = not self._last or now - self._last > self._lateness + 2 * pause
        return until if stopped else min(until, self._before)
