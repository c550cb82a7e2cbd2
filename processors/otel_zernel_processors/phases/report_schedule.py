"""The times of the reports on one host."""

from collections.abc import Iterator

_MANY = 1000
"""After a pause in the data, at most this many missed reports are made up for."""


class ReportSchedule:
    """A report is due at every whole multiple of the interval."""

    def __init__(self, interval_ns: int) -> None:
        self._interval = interval_ns
        self._next = 0

    def due(self, since: int, until: int) -> Iterator[int]:
        """The times (ns) at which reports are due after `since`, the host's first time, up to `until`. Each time is
        yielded once, and a time counts as reported when the next one is requested."""
        if not since:
            return
        if not self._next:
            self._next = (since // self._interval + 1) * self._interval
        if until - self._next > _MANY * self._interval:
            yield self._next
            self._next = until // self._interval * self._interval
        while self._next <= until:
            yield self._next
            self._next += self._interval
