"""The watermark of one host: the time up to which all data, lost events included, has arrived.

A receiver reports lost events only with its next reading of the counters, so the watermark waits for that reading.
"""

from otel_zernel_processors.phases.config import PhasesConfig, ns


class Watermark:
    """Follows the readings of one host's receiver by the metric `zernel.reading.sequence`.

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
