"""The periods in which a receiver lost events, read from the counter `zernel.ebpf.lost_events`."""

from collections import deque
from collections.abc import Collection, Iterator
from typing import NamedTuple

from otel_zernel_processors.phases.intake.inputs import InputPoint

_READING_NS = 100_000_000
"""A reading takes at most this long. Events lost during a reading are counted in the next point."""
_PERIODS = 64


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
    """The latest losses on one host."""

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
