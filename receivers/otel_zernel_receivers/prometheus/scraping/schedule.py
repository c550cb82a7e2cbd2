"""The times of a target's scrapes: a fixed place in each interval, by the wall clock."""

import math

from otel_zernel.clock import Clock

_TOLERANCE = 0.01
"""Points have the planned time if the scrape begins within 10 ms and 1 % of the interval. Equal distances compress
better. Prometheus does the same within 2 ms."""


class ScrapeSchedule:
    """The next scrape of one target. Scrapes that would begin in the past are left out."""

    def __init__(self, clock: Clock, interval: float, offset: float) -> None:
        """`interval` is in seconds; `offset` is a part of it, from 0 to 1."""
        self._clock = clock
        self._interval = interval
        now_ns = clock.time_ns()
        every = round(interval * 1e9)
        wait_ns = (round(offset * every) - now_ns) % every
        self._due = clock.monotonic() + wait_ns / 1e9
        self._due_ns = now_ns + wait_ns
        """The wall clock at the next scrape."""

    @property
    def wait(self) -> float:
        """Seconds until the next scrape."""
        return max(self._due - self._clock.monotonic(), 0.0)

    def begin(self) -> int:
        """The time for the points of the scrape that begins now, in ns. Plans the next one."""
        now, now_ns = self._clock.monotonic(), self._clock.time_ns()
        time_ns = self._due_ns if abs(now_ns - self._due_ns) <= self._tolerance_ns else now_ns
        steps = max(math.floor((now - self._due) / self._interval) + 1, 1)
        self._due += steps * self._interval
        planned_ns = self._due_ns + round(steps * self._interval * 1e9)
        drift_ns = planned_ns - now_ns - round((self._due - now) * 1e9)
        # After a change of the wall clock, the plan follows the clock.
        self._due_ns = planned_ns if abs(drift_ns) <= self._tolerance_ns else planned_ns - drift_ns
        return time_ns

    @property
    def _tolerance_ns(self) -> int:
        return round(min(_TOLERANCE, self._interval / 100) * 1e9)
