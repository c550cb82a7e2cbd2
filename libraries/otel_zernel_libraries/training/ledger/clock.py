"""The clock of a thread: its counters at any time, by the snapshots around it."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from operator import itemgetter, sub
from typing import Final

from otel_zernel_libraries.training.ledger.moments import MOMENTS, Activity, Moment, Position
from otel_zernel_libraries.training.ledger.segments import NO_WORK, Segment, Work
from otel_zernel_libraries.training.ledger.snapshots import COUNTS, KNOWS_TIMES, SAMPLES, STATES, WAITS, Snapshot
from otel_zernel_libraries.training.ledger.thread_samples import ThreadSamples

_ROUNDING: Final = 100
"""If snapshots miss at most one part in so many of a segment, or repeat it, the longest activity gets or gives it."""
_new: Final = tuple.__new__
"""Makes a named tuple. Its own `__new__` takes twice as long."""
_READ, _KNOWN = Snapshot._fields.index("read"), Snapshot._fields.index("known")
_CPU_WAIT: Final = STATES.index(Activity.CPU_WAIT)
_WAITS: Final = tuple(STATES.index(activity) for activity in WAITS)
_OF_PROBES: Final = (Activity.OPERATOR, Activity.PYTHON, Activity.NATIVE)
_EDGE_NS: Final = 10_000
"""A snapshot may be taken so long before or after the edge of its span (docs/development/spans.md)."""
TimedSnapshot = tuple[int, Snapshot]
"""A snapshot with its time in ns since 1970."""


class ThreadClock:
    """The counters of one thread over time. Between two snapshots they grow evenly."""

    def __init__(
        self, snapshots: Iterable[TimedSnapshot], samples: ThreadSamples | None = None, of_hit: float = 0.0
    ) -> None:
        """`samples` has the samples of earlier steps. `of_hit`: the time (ns) that a hit of a probe takes."""
        self._of_hit = of_hit
        self._samples = samples if samples is not None else ThreadSamples()
        ordered = sorted(snapshots, key=itemgetter(0))
        self._times = [time for time, _ in ordered]
        self._snapshots = [snapshot for _, snapshot in ordered]
        self._known: dict[int, Snapshot | None] = {}
        """The answers by time: a segment begins where another ends."""

    def at(self, time: int) -> Snapshot | None:
        """The counters at a time (ns since 1970); None outside the snapshots, and between two of different counts."""
        try:
            return self._known[time]
        except KeyError:
            counters = self._known[time] = self._at(time)
            return counters

    def _at(self, time: int) -> Snapshot | None:
        times, snapshots = self._times, self._snapshots
        after = bisect_left(times, time)
        if after == len(times):
            return snapshots[-1] if times and time - times[-1] <= _EDGE_NS else None
        end, last = times[after], snapshots[after]
        if end == time:
            return last
        if after == 0:
            return last if end - time <= _EDGE_NS else None
        begin, first = times[after - 1], snapshots[after - 1]
        return first.towards(last, time - begin, end - begin) if last.since(first) else None

    def insert(self, time: int, snapshot: Snapshot) -> None:
        """Adds what is known about a time between two snapshots."""
        at = bisect_left(self._times, time)
        self._times.insert(at, time)
        self._snapshots.insert(at, snapshot)
        self._known.clear()

    def __bool__(self) -> bool:
        """Whether it has snapshots."""
        return bool(self._times)

    def knows(self, start: int, end: int) -> bool:
        """Whether it has snapshots from before `start` to after `end` (ns since 1970)."""
        times = self._times
        return bool(times) and times[0] - _EDGE_NS <= start <= end <= times[-1] + _EDGE_NS

    def times_between(self, start: int, end: int) -> list[int]:
        """The times (ns since 1970) of the snapshots after `start` and before `end`."""
        return self._times[bisect_right(self._times, start) : bisect_left(self._times, end)]

    def work_between(self, start: int, end: int) -> Work | None:
        """What the thread did from one time to another; None if it is not known."""
        first, last = self.at(start), self.at(end)
        return self._work(start, end, first, last) if first and last and last.since(first) else None

    def part_before_backward(self, start: int, end: int) -> float | None:
        """The part of the thread's own time from one time to another, a gap between two steps, in code before the
        backward pass, 0 to 1; None if samples do not show it. Each gap is asked for once."""
        first, last = self.at(start), self.at(end)
        if first is None or last is None or not last.since(first):
            return None
        before, after = last.sampled_before - first.sampled_before, last.sampled_after - first.sampled_after
        on_cpu, of_waits = last.times[0] - first.times[0], _part_of_waits(first, last)
        return self._samples.part_before_backward(before % COUNTS, after % COUNTS, of_waits, on_cpu)

    def segments(self, start: int, end: int, moment: Moment) -> tuple[Segment, ...]:
        """The segment of a position. `moment` has the activity that its interval shows; a state says more.

        Waits for other ranks become a segment of their own, which ends it: they decide the phase, and ranks meet there.
        """
        first, last = self.at(start), self.at(end)
        if first is None or last is None or (times := last.by_state_since(first)) is None:
            return (Segment(start, end, moment),)
        work = self._work(start, end, first, last)
        position = self._position(moment.position, first, last)
        moments = MOMENTS[position]
        if moment.activity is not Activity.UNKNOWN or not first.known & last.known & KNOWS_TIMES:
            return (_new(Segment, (start, end, moments[moment.activity], (), work)),)
        spent = self._by_activity(position, first, last, _lasting(times, end - start))
        waited = spent.pop(Activity.COLLECTIVE, 0)
        own = end - waited
        meeting: tuple[Segment, ...] = ()
        if waited:
            meeting = (Segment(own, end, moments[Activity.COLLECTIVE], (), NO_WORK if spent else work),)
        if len(spent) < 2:
            return *[_new(Segment, (start, own, moments[activity], (), work)) for activity in spent], *meeting
        divided = tuple([(moments[activity], lasted) for activity, lasted in spent.items()])
        longest = moments[max(spent, key=spent.__getitem__)]
        return _new(Segment, (start, own, longest, divided, work)), *meeting

    def _position(self, position: Position, first: Snapshot, last: Snapshot) -> Position:
        """The position that the Python frames of the segment show, or this one."""
        if first.frame_times == last.frame_times and not self._samples.has_frames:
            return position
        frame_times = _counted(first.frame_times, last.frame_times, COUNTS)
        time = last.time - first.time - (last.times[_CPU_WAIT] - first.times[_CPU_WAIT])
        return self._samples.position(position, time // 1000, frame_times)

    def _by_activity(
        self, position: Position, first: Snapshot, last: Snapshot, spent: dict[Activity | None, int]
    ) -> dict[Activity, int]:
        """The time (ns) in each activity, by that in each state."""
        on_cpu = spent.pop(None, 0)
        states: dict[Activity, int] = spent  # type: ignore[assignment]  # without None
        if not on_cpu:
            return states
        samples = _counted(first.samples, last.samples, SAMPLES)
        divided = self._samples.divide(position, on_cpu, samples) or _by_operators(position, first, last, on_cpu)
        hits = last.hits - first.hits
        if hits and self._of_hit:
            divided = _with_probes(divided, min(round(hits * self._of_hit), on_cpu))
        return divided | states if states else divided

    def _work(self, start: int, end: int, first: Snapshot, last: Snapshot) -> Work:
        read, copied, *counts = map(sub, last[_READ:_KNOWN], first[_READ:_KNOWN])
        operators, own, copies, collectives, *faults = [count % COUNTS for count in counts]
        others = (last.backward_launches - first.backward_launches) % COUNTS
        begun = ended = 0
        if own or others:
            begins = [self._first_launch(start, end) if own else 0]
            ends = [self._last_launch(start, end) if own else 0]
            if others:
                begins.append(_clipped(last.backward_first_launch - last.time + end, start, end))
                ends.append(_clipped(last.backward_last_launch - last.time + end, start, end))
            begun, ended = min(filter(None, begins), default=0), max(ends)
        return _new(
            Work,
            (
                *(operators, own + others, begun, ended, collectives, copies, copied, read, *faults),
                *(last.written - first.written, last.writing - first.writing, (last.forks - first.forks) % COUNTS),
                *(last.backward_blocked - first.backward_blocked, last.hits - first.hits),
            ),
        )

    def _first_launch(self, start: int, end: int) -> int:
        """The first launch from `start` on, but before `end` (ns since 1970); 0 without one.

        A snapshot has the first launch since the one before.
        """
        for at in range(bisect_right(self._times, start), len(self._times)):
            time, snapshot = self._times[at], self._snapshots[at]
            launch = snapshot.first_launch and snapshot.first_launch - snapshot.time + time
            if launch:
                return launch if start <= launch < end else 0
            if time >= end:
                break
        return 0

    def _last_launch(self, start: int, end: int) -> int:
        before = max(bisect_right(self._times, end) - 1, 0)
        for at in range(before, min(before + 2, len(self._times))):
            snapshot = self._snapshots[at]
            launch = snapshot.last_launch and snapshot.last_launch - snapshot.time + self._times[at]
            if start <= launch < end:
                return launch
        return 0


def _part_of_waits(first: Snapshot, last: Snapshot) -> float | None:
    """The part of the thread's waits in code before the backward pass, 0 to 1, if it waits for longer than it computes;
    None if the code of most of them is not known."""
    waits = sum(last.times[state] - first.times[state] for state in _WAITS)
    before = sum(_counted(first.before_backward, last.before_backward, COUNTS)) * 1000
    known = before + last.giving - first.giving + last.writing - first.writing
    known += last.after_backward - first.after_backward
    is_known = waits > last.times[0] - first.times[0] and 2 * known > waits
    return min(before / waits, 1.0) if is_known else None


def _clipped(time: int, start: int, end: int) -> int:
    return min(max(time, start), end)


def _counted(before: tuple[int, ...], after: tuple[int, ...], modulus: int) -> list[int]:
    """The differences of counts."""
    if before == after:
        return [0] * len(after)
    return [(new - old) % modulus for old, new in zip(before, after, strict=True)]


def _by_operators(position: Position, first: Snapshot, last: Snapshot, on_cpu: int) -> dict[Activity, int]:
    """Divides the time on the CPU without samples: it belongs to operators if the segment has one.

    If the thread is sampled at other times, the time after the begin of the last operator is Python.
    """
    if position is Position.BACKWARD:
        return {Activity.OPERATOR: on_cpu}
    if first.operators == last.operators:
        return {Activity.PYTHON: on_cpu}
    python = min(max(last.time - last.last_operator, 0), on_cpu) if any(last.samples) and last.last_operator else 0
    divided = {Activity.OPERATOR: on_cpu - python, Activity.PYTHON: python}
    return {activity: time for activity, time in divided.items() if time}


def _with_probes(divided: Mapping[Activity, int], lasted: int) -> dict[Activity, int]:
    """Divides the time on the CPU with so many ns in probes. A sample in a probe shows the probed function, which is
    PyTorch's: so they are a part of the operators, and of all else only if these take less."""
    rest = {}
    left = lasted
    for activity in _OF_PROBES:
        if time := divided.get(activity, 0):
            gone = min(time, left)
            left -= gone
            if time > gone:
                rest[activity] = time - gone
    rest[Activity.PROBE] = lasted - left
    return rest


def _lasting(spent: dict[Activity | None, int], lasted: int) -> dict[Activity | None, int]:
    """The time (ns) in each state; the sum is `lasted`. None is on the CPU."""
    total = sum(spent.values())
    if total == lasted:
        return spent
    if total > lasted:
        spent = {state: time * lasted // total for state, time in spent.items()}
        total = sum(spent.values())
    if rest := lasted - total:
        is_rounding = spent and rest * _ROUNDING <= lasted + _ROUNDING * _ROUNDING
        state = max(spent, key=spent.__getitem__) if is_rounding else Activity.UNKNOWN
        spent[state] = spent.get(state, 0) + rest
    return spent
