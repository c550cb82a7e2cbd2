"""The time of a host: that of the latest thing seen of it, not that of the collector's clock."""

from otel_zernel.clock import Clock

_AHEAD_NS = 60_000_000_000
"""Times further ahead of the host's time and of the collector's clock are wrong: they would make all that follows late.
Where the host was ahead of that clock from the first, it may stay so; where by more than a day, the clock says nothing
of it, and a day is the bound."""
_DAY_NS = 86_400_000_000_000


class HostTime:
    """Goes on with what is seen. All times are ns since 1970."""

    def __init__(self, clock: Clock, patience_ns: int) -> None:
        """`clock` is the collector's. What nothing but times too far ahead has come of for `patience_ns` is there."""
        self._clock = clock
        self._patience_ns = patience_ns
        self.now = self.since = 0
        """The latest and the first time seen."""
        self._latest = self._ahead = self._refused_since = self._quiet_since = 0

    def sees(self, start: int, end: int) -> bool:
        """Lets time go on to what is seen; whether it is believed. Of the first thing seen, any time is."""
        if end > self.now:
            if end > self._latest and not self._believes(end):
                return False
            self.since, self.now, self._refused_since = self.since or start, end, 0
        self._quiet_since = 0
        return True

    def quiet_ns(self, wall: int) -> int:
        """For how long nothing was seen, since first asked, by the collector's time `wall`: this one stands still
        meanwhile."""
        self._quiet_since = self._quiet_since or wall
        return wall - self._quiet_since

    def _believes(self, time: int) -> bool:
        wall = self._clock.time_ns()
        if not self.now:
            self._latest, self._ahead = time, max(time - wall, 0)
            return True
        bound = _AHEAD_NS if self._ahead < _DAY_NS else _DAY_NS
        self._latest = max(self.now, wall + self._ahead) + bound
        if time <= self._latest:
            return True
        self._refused_since = self._refused_since or wall
        return wall - self._refused_since > self._patience_ns
