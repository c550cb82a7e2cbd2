"""What is missing in the data of one host: events that the receiver lost, and spans that arrived too late."""

from collections import Counter, deque
from collections.abc import Collection, Iterator
from typing import NamedTuple

from otel_zernel.component import Logger
from otel_zernel.text import printable
from otel_zernel_processors.phases.intake.inputs import InputPoint

_READING_NS = 100_000_000
"""A reading takes at most this long. Events lost during a reading are counted in the next point."""
_PERIODS = 64
_PAUSE_NS = 60_000_000_000
"""At most one line about late spans in this time."""


class LossPeriod(NamedTuple):
    """Events were lost at some time in [start, end) (ns)."""

    pid: int | None
    """The process that lost events; None if it may be any process."""
    start: int
    end: int

    def concerns(self, pid: int) -> bool:
        """Whether the process may have lost events."""
        return self.pid in (None, pid)


class LossLog:
    """The latest losses on one host, read from the counter `zernel.ebpf.lost_events`."""

    def __init__(self, interval_ns: int) -> None:
        """The first point of a cumulative counter counts `interval_ns` back from its time."""
        self._interval_ns = interval_ns
        self._last: dict[int | None, tuple[int, float]] = {}
        self._periods: deque[LossPeriod] = deque(maxlen=_PERIODS)

    def add(self, point: InputPoint) -> LossPeriod | None:
        """Adds a point of the counter; returns the new period if it counts a loss.

        The loss lies between the counter's last point (or the start of a delta point) and this one.
        """
        start, before = self._last.get(point.pid, (point.time - self._interval_ns, 0.0))
        self._last[point.pid] = (point.time, point.value)
        if point.delta:
            start, before = point.start or start, 0.0
        if point.value <= before:
            return None
        self._periods.append(LossPeriod(point.pid, start - _READING_NS, point.time))
        return self._periods[-1]

    def of(self, pid: int) -> Iterator[LossPeriod]:
        """The periods that concern a process, the earliest first."""
        return (period for period in self._periods if period.concerns(pid))

    def keep_only(self, pids: Collection[int]) -> None:
        """Forgets the counters of all other processes."""
        self._last = {pid: last for pid, last in self._last.items() if pid is None or pid in pids}


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
