"""Up to when it is known which events were lost: a loss is told only with the next reading of the kernel's counters."""

from otel_zernel_processors.phases.config import PhasesConfig, ns


class Readings:
    """The readings of one host's eBPF receiver, by the metric that comes with each.

    What belongs to a reading may come in several batches, by several ways; so all of it is there only with the next
    reading. Where none are seen, or no more, nothing waits for them.
    """

    def __init__(self, config: PhasesConfig) -> None:
        self._lateness = ns(config.lateness)
        self._longest = ns(config.idle_timeout)
        self._before = self._last = 0

    def seen(self, since: int, time: int) -> None:
        """Notes a reading of what came `since` the one before (ns; 0 if it does not say)."""
        if time > self._last:
            self._before, self._last = since or self._last, time

    def known(self, clock: int) -> int:
        """Up to when (ns) everything is known now that it is `clock`: what comes later has to be counted."""
        until = clock - self._lateness
        pause = min(self._last - self._before, self._longest)
        ceased = not self._last or clock - self._last > self._lateness + 2 * pause
        return until if ceased else min(until, self._before)
