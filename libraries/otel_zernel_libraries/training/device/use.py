"""What a device did in the segments of a thread: how long it was busy, and how long it had nothing to do.

Some of it is certain. After a wait the streams are empty, so the device is idle until the next launch. While the thread
waits, or is blocked in a launch, it is busy. Between those, the works of the launches decide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from otel_zernel_libraries.training.device.segments import Kind, Segment
from otel_zernel_libraries.training.device.streams import NS, Floats, Rows
from otel_zernel_libraries.training.device.works import Equations
from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Moment, Position

_WAITS: Final = frozenset({Activity.GPU_WAIT, Activity.COLLECTIVE, Activity.LAUNCH_BLOCKED})


class Bounds(NamedTuple):
    """Seconds: at least, most likely, and at most."""

    low: float
    best: float
    high: float


@dataclass(frozen=True)
class DeviceUse:
    """The use of a device in the segments of a thread."""

    segments: Sequence[Segment]
    idle: Floats
    """Seconds of each segment in which the device had nothing to do. The first row is the most likely one. Each other
    row is possible."""
    margins: Floats
    """Seconds of each segment by which the truth may be below, and above, all rows."""
    works: Mapping[Kind, float]
    """Seconds of work for a launch of each kind, most likely."""

    @property
    def seconds(self) -> float:
        return (self.segments[-1].end - self.segments[0].begin) * NS

    @property
    def busy(self) -> Bounds:
        low, best, high = self.starved()
        return Bounds(self.seconds - high, self.seconds - best, self.seconds - low)

    @property
    def undetermined(self) -> float:
        """Seconds in which it is not known whether the device was busy."""
        low, _, high = self.starved()
        return high - low

    def starved(self, position: Position | None = None, activity: Activity | None = None) -> Bounds:
        """Seconds in which the thread was there, did that, and the device had nothing to do; None: anywhere, anything.

        Within a segment, the device's idle time is divided among the thread's activities, in proportion.
        """
        parts = np.array([_share(segment, position, activity) for segment in self.segments])
        return self._bounds(self.idle @ parts, self.margins @ parts)

    def starved_by_moment(self) -> dict[Moment, Bounds]:
        """`starved` of every position and activity."""
        moments: dict[Moment, int] = {}
        rows, columns, values = [], [], []
        for row, segment in enumerate(self.segments):
            for activity, share in _shares(segment):
                rows.append(row)
                columns.append(moments.setdefault(MOMENTS[segment.position][activity], len(moments)))
                values.append(share)
        parts = np.zeros((len(self.segments), len(moments)))
        parts[rows, columns] = values
        idle, margins = self.idle @ parts, self.margins @ parts
        return {moment: self._bounds(idle[:, column], margins[:, column]) for moment, column in moments.items()}

    def _bounds(self, sums: Floats, margins: Floats) -> Bounds:
        below, above = margins
        return Bounds(max(float(sums.min() - below), 0.0), float(sums[0]), float(sums.max() + above))


def _share(segment: Segment, position: Position | None, activity: Activity | None) -> float:
    if position not in (None, segment.position):
        return 0.0
    return 1.0 if activity is None else dict(_shares(segment)).get(activity, 0.0)


def _shares(segment: Segment) -> list[tuple[Activity, float]]:
    """The activities of the thread while it did not wait for the device; the sum is 1."""
    own = [(activity, time) for activity, time in segment.activities.items() if activity not in _WAITS]
    total = sum(time for _, time in own)
    return [(activity, time / total) for activity, time in own] if total else [(Activity.UNKNOWN, 1.0)]


def device_use(
    segments: Sequence[Segment], busy_share: float | None = None, *, sees_queue: bool = True
) -> DeviceUse | None:
    """The use of the device by a thread whose segments follow each other; None if it launched nothing, or in no time.

    `busy_share`: the part of the time in which the device was busy, 0 to 1, from NVML or GPM; None if unknown.
    `sees_queue`: whether all launches are counted, so that a full queue says which of them are done.
    """
    if not any(segment.launches for segment in segments) or segments[0].begin >= segments[-1].end:
        return None
    equations = Equations(segments, sees_queue=sees_queue)
    solution = equations.solve(busy_share)
    columns = _Columns(segments)
    idle = np.stack([columns.idle(equations.rows, works) for works in (solution.best, *solution.possible)])
    works = {kind: float(solution.best[index]) for kind, index in equations.kinds.items()}
    certain = columns.certainly_idle(equations.rows)
    return DeviceUse(segments, idle, columns.margins(idle, certain, solution.margin), works)


class _Columns:
    """The segments of a thread as columns. Times are seconds since the first."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        origin = segments[0].begin
        columns = (
            np.array(
                [(segment.begin - origin, segment.end - origin, segment.blocked, segment.wait) for segment in segments]
            ).T
            * NS
        )
        self.begin, self.end, self.blocked, wait = columns
        self._is_unknown = np.array([not segment.is_known for segment in segments])
        self.until = np.maximum(self.end - wait, self.begin)
        """When the wait begins that ends the segment."""

    def idle(self, rows: Sequence[Rows], works: Floats) -> Floats:
        """Seconds of each segment in which no stream has work, if they have such works."""
        length = np.maximum(self.until - self.begin - self.blocked, 0.0)
        idle: Floats = length.copy()
        for each in rows:
            idle *= np.divide(self._idle(each, works), length, out=np.zeros_like(length), where=length > 0)
        return idle

    def certainly_idle(self, rows: Sequence[Rows]) -> Floats:
        """Seconds of each segment before its first launch, if a wait had emptied all streams."""
        idle: Floats = self.until - self.begin
        for each in rows:
            before = np.searchsorted(each.segment, np.arange(len(self.begin))) - 1
            is_empty = np.append(each.drained, np.inf)[before] <= self.begin
            idle = np.minimum(idle, np.where(is_empty, self._lead(each) - self.begin, 0.0))
        return np.maximum(idle, 0.0)

    def margins(self, idle: Floats, certain: Floats, margin: Floats) -> Floats:
        """`margin`: how much less and how much more (s) the device may have worked than any solution says."""
        low = np.maximum(idle.min(axis=0) - certain, 0.0)
        room = np.maximum(self.until - self.begin - self.blocked - idle.max(axis=0), 0.0)
        below = low * min(margin[1] / max(float(low.sum()), 1e-9), 1.0)
        above = room * min(margin[0] / max(float(room.sum()), 1e-9), 1.0)
        below[self._is_unknown] = idle.max(axis=0)[self._is_unknown]
        above[self._is_unknown] = (self.end - self.begin)[self._is_unknown]
        return np.array([below, above])

    def _lead(self, rows: Rows) -> Floats:
        """The time of each segment's first launch, or of its wait if it launches nothing."""
        lead: Floats = self.until.copy()
        lead[rows.segment] = rows.first
        return lead

    def _idle(self, rows: Rows, works: Floats) -> Floats:
        index = np.arange(len(rows.count))
        finish = np.minimum(rows.finish(works, index, np.ones(len(index))).time, rows.drained)
        before = np.searchsorted(rows.segment, np.arange(len(self.begin))) - 1
        busy_until = np.append(finish, -np.inf)[before]
        idle: Floats = np.maximum(self._lead(rows) - np.maximum(busy_until, self.begin), 0.0)
        # from the first launch to the last, and after it
        at = rows.segment
        backlog = np.maximum(busy_until[at] - rows.first, 0.0), np.maximum(finish - rows.last, 0.0)
        launching = rows.last - rows.first
        starved = launching - backlog[0] - rows.count * works[rows.kind] + backlog[1]
        idle[at] += np.clip(starved, 0.0, np.maximum(launching - rows.blocked, 0.0))
        idle[at] += np.maximum(self.until[at] - np.maximum(finish, rows.last), 0.0)
        return idle
