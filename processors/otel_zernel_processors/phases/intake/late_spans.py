"""The log line about spans that arrive too late."""

from collections import Counter

from otel_zernel.component import Logger
from otel_zernel.text import printable

_PAUSE_NS = 60_000_000_000
"""At most one line in this time."""


class LateSpans:
    """Counts the late spans of one host, and logs them."""

    def __init__(self, logger: Logger, lateness: float) -> None:
        """`lateness`: how long (s) the processor waits for spans."""
        self._logger = logger
        self._lateness = lateness
        self._counts: Counter[int] = Counter()
        """By pid, since the last line."""
        self._delay_ns = self._logged_at = 0

    def add(self, pid: int, count: int, delay_ns: int) -> None:
        """Counts spans of a process. The first of them ended `delay_ns` before the host's latest data."""
        if count:
            self._counts[pid] += count
            self._delay_ns = max(self._delay_ns, delay_ns)

    def log(self, host: str, now: int) -> None:
        """Logs the spans that were dropped since the last line, at most once a minute of the host's time `now` (ns)."""
        if not self._counts or 0 < now - self._logged_at < _PAUSE_NS:
            return
        processes = f"{len(self._counts)} {'process' if len(self._counts) == 1 else 'processes'}"
        ((most, _),) = self._counts.most_common(1)
        self._logger.warning(
            "Dropped %d late spans of %s on %s, most of them of pid %d: they arrived up to %.3g s after newer data, or "
            "after the end of their process. Their time is unknown: raise lateness, which is %.3g s, or find what "
            "holds them up",
            *(self._counts.total(), processes, printable(host) or "an unnamed host", most, self._delay_ns / 1e9),
            self._lateness,
        )
        self._counts.clear()
        self._delay_ns, self._logged_at = 0, now
