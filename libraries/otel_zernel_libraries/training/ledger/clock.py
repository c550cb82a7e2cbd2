"""The clock of a thread: its counters at any time, by the snapshots around it."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Final

from otel_zernel_libraries.training.ledger.moments import MOMENTS, Activity, Moment, Position
from otel_zernel_libraries.training.ledger.segments import NO_WORK, Segment, Work
from otel_zernel_libraries.training.ledger.snapshots import STATES, Snapshot

_COUNTS: Final = 2**32
"""Counts are modulo this."""
_SAMPLES: Final = 2**16
"""Samples are."""
_ROUNDING: Final = 100
"""If snapshots miss at most one part in so many of a segment, or repeat it, the longest activity gets or gives it."""
_EDGE_NS: Final = 10_000
"""A snapshot may be taken so long before or after the edge of its span (docs/spans.md)."""
TimedSnapshot = tuple[int, Snapshot]
"""A snapshot with its time in ns since 1970."""


class ThreadClock:
    """The counters of one thread over time. Between two snapshots they grow evenly."""

    def __init__(self, snapshots: Iterable[TimedSnapshot]) -> None:
        self._snapshots = sorted(snapshots, key=itemgetter(0))
        self._latest: tuple[int, Snapshot | None] = (-1, None)
        """The last answer: a segment begins where another ends."""

    def at(self, time: int) -> Snapshot | None:
        """The counters at a time (ns since 1970); None outside the snapshots, and between two of different counts."""
        snapshots = self._snapshots
        after = bisect_left(snapshots, time, key=itemgetter(0))
        if after == len(snapshots):
            return snapshots[-1][1] if snapshots and time - snapshots[-1][0] <= _EDGE_NS else None
        end, last = snapshots[after]
        if end == time:
            return last
        if after == 0:
            return last if end - time <= _EDGE_NS else None
        begin, first = snapshots[after - 1]
        return _between(first, last, time - begin, end - begin) if last.follows(first) else None

    def insert(self, time: int, snapshot: Snapshot) -> None:
        """Adds what is known about a time between two snapshots."""
        self._snapshots.insert(bisect_left(self._snapshots, time, key=itemgetter(0)), (time, snapshot))

    def __bool__(self) -> bool:
        """Whether it has snapshots."""
        return bool(self._snapshots)

    def knows(self, start: int, end: int) -> bool:
        """Whether it has snapshots from before `start` to after `end` (ns since 1970)."""
        if not self._snapshots:
            return False
        begin, last = self._snapshots[0][0], self._snapshots[-1][0]
        return begin - _EDGE_NS <= start <= end <= last + _EDGE_NS

    def times_between(self, start: int, end: int) -> list[int]:
        """The times (ns since 1970) of the snapshots after `start` and before `end`."""
        first = bisect_right(self._snapshots, start, key=itemgetter(0))
        last = bisect_left(self._snapshots, end, first, key=itemgetter(0))
        return [time for time, _ in self._snapshots[first:last]]

    def work_between(self, start: int, end: int) -> Work | None:
        """What the thread did from one time to another; None if it is not known."""
        first, last = self.at(start), self.at(end)
        return self._work(start, end, first, last) if first and last and last.follows(first) else None

    def segments(self, start: int, end: int, moment: Moment) -> tuple[Segment, ...]:
        """The segment of a position. `moment` has the activity that its interval shows; a state says more.

        Waits for other ranks become a segment of their own, which ends it: they decide the phase, and ranks meet there.
        """
        first = self._latest[1] if self._latest[0] == start else self.at(start)
        last = self.at(end)
        self._latest = end, last
        if first is None or last is None or not last.follows(first):
            return (Segment(start, end, moment),)
        work = self._work(start, end, first, last)
        if moment.activity is not Activity.UNKNOWN or not (first.knows_times and last.knows_times):
            return (Segment(start, end, moment, (), work),)
        spent = _by_activity(moment.position, _difference(first, last), end - start, work)
        moments = MOMENTS[moment.position]
        waited = spent.pop(Activity.COLLECTIVE, 0)
        meeting = Segment(end - waited, end, moments[Activity.COLLECTIVE], (), NO_WORK if spent else work)
        if not spent:
            return (meeting,)
        times = tuple((moments[activity], lasted) for activity, lasted in spent.items())
        longest = moments[max(spent, key=spent.__getitem__)]
        own = Segment(start, end - waited, longest, times if len(times) > 1 else (), work)
        return (own, meeting) if waited else (own,)

    def _work(self, start: int, end: int, first: Snapshot, last: Snapshot) -> Work:
        return Work(
            operators=(last.operators - first.operators) % _COUNTS,
            launches=(last.launches - first.launches) % _COUNTS,
            first_launch=self._first_launch(start, end),
            last_launch=self._last_launch(start, end),
            collectives=(last.collectives - first.collectives) % _COUNTS,
            copies=(last.copies - first.copies) % _COUNTS,
            copied=last.copied - first.copied,
            read=last.read - first.read,
            file_faults=(last.file_faults - first.file_faults) % _COUNTS,
            minor_faults=(last.minor_faults - first.minor_faults) % _COUNTS,
            major_faults=(last.major_faults - first.major_faults) % _COUNTS,
        )

    def _first_launch(self, start: int, end: int) -> int:
        """The first launch from `start` on, but before `end` (ns since 1970); 0 without one.

        A snapshot has the first launch since the one before.
        """
        for at in range(bisect_right(self._snapshots, start, key=itemgetter(0)), len(self._snapshots)):
            time, snapshot = self._snapshots[at]
            launch = snapshot.first_launch and snapshot.first_launch - snapshot.time + time
            if launch:
                return launch if start <= launch < end else 0
            if time >= end:
                break
        return 0

    def _last_launch(self, start: int, end: int) -> int:
        at = bisect_right(self._snapshots, end, key=itemgetter(0)) - 1
        for time, snapshot in self._snapshots[at : at + 2]:
            launch = snapshot.last_launch and snapshot.last_launch - snapshot.time + time
            if start <= launch < end:
                return launch
        return 0


def _between(first: Snapshot, last: Snapshot, part: int, whole: int) -> Snapshot:
    """The counters after `part` ns of the `whole` ns between two snapshots."""

    def share(before: int, after: int) -> int:
        return before + (after - before) * part // whole

    def counted(before: int, after: int) -> int:
        return before + (after - before) % _COUNTS * part // whole

    def sampled(before: int, after: int) -> int:
        return before + (after - before) % _SAMPLES * part // whole

    return first._replace(
        time=first.time + part,
        times=tuple(map(share, first.times, last.times)),
        read=share(first.read, last.read),
        copied=share(first.copied, last.copied),
        operators=counted(first.operators, last.operators),
        launches=counted(first.launches, last.launches),
        copies=counted(first.copies, last.copies),
        collectives=counted(first.collectives, last.collectives),
        file_faults=counted(first.file_faults, last.file_faults),
        minor_faults=counted(first.minor_faults, last.minor_faults),
        major_faults=counted(first.major_faults, last.major_faults),
        samples=tuple(map(sampled, first.samples, last.samples)),
        frame_times=tuple(map(counted, first.frame_times, last.frame_times)),
    )


def _difference(first: Snapshot, last: Snapshot) -> tuple[int, ...]:
    return tuple(max(after - before, 0) for before, after in zip(first.times, last.times, strict=True))


def _by_activity(position: Position, times: tuple[int, ...], lasted: int, work: Work) -> dict[Activity, int]:
    """The time (ns) in each activity; the sum is `lasted`."""
    on_cpu = Activity.OPERATOR if work.operators or position is Position.BACKWARD else Activity.PYTHON
    spent: dict[Activity, int] = {}
    for state, time in zip(STATES, times, strict=True):
        if time:
            activity = state or on_cpu
            spent[activity] = spent.get(activity, 0) + time
    total = sum(spent.values())
    if total > lasted:
        spent = {activity: time * lasted // total for activity, time in spent.items()}
        total = sum(spent.values())
    rest = lasted - total
    is_rounding = spent and rest * _ROUNDING <= lasted + _ROUNDING * _ROUNDING
    activity = max(spent, key=lambda one: spent[one]) if is_rounding else Activity.UNKNOWN
    if rest:
        spent[activity] = spent.get(activity, 0) + rest
    return spent
