"""One stream of a device: its launches as columns of numpy arrays, and when the device has done them.

All launches of a kind have the same work, and the launches of a segment are evenly spaced. Then the time at which the
device has done some launches is the largest of a few sums. Each adds the work since a pause of the device to the end of
that pause. So the time is convex in the works, and its slope counts launches by kind.

Times are seconds since the first segment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from otel_zernel_libraries.training.device.segments import QUEUE, SHORTEST_BLOCK, SHORTEST_WAIT, Kind, Segment, Stream

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NS: Final = 1e-9


@dataclass(frozen=True)
class Limits:
    """The device had done the launches before a place by a time: a wait ended, or a launch returned."""

    row: Integers
    part: Floats
    """The part of the row's launches that are before the place, 0 to 1."""
    time: Floats
    cause: Integers
    """The index of the segment whose wait or whose launches show the limit."""
    is_exact: Flags
    """Whether the thread waited. Then the device reached one limit of the cause exactly at its time."""

    def __add__(self, other: "Limits") -> "Limits":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Limits(*(np.concatenate(pair) for pair in pairs))


class Finish(NamedTuple):
    """When the device has done the launches before some places."""

    time: Floats
    begun_by: Integers
    """The device's last pause was in an earlier row (0), or before the first (1) or the last launch (2) of the row."""
    source: Integers
    """The earlier row."""
    by_last: Flags
    """Whether the device began with the last launch of that row, rather than with its first."""


@dataclass(frozen=True)
class Rows:
    """The segments that launched into a stream, a row each."""

    stream: Stream
    segment: Integers
    """The index of the segment."""
    kind: Integers
    """The index of the kind of its launches."""
    count: Floats
    first: Floats
    """The begin of the first launch."""
    last: Floats
    """The begin of the last launch."""
    blocked: Floats
    start: Integers
    """The first row since the stream was last empty."""
    counted: Floats
    """Of each row and kind: the launches before it. One row more than there are rows."""
    drained: Floats
    """When a wait saw that the stream had done the row and all before it; infinite if none did."""

    def finish(self, works: Floats, row: Integers, part: Floats) -> Finish:
        """`works`: the seconds of a launch of each kind."""
        passed = self.counted @ works
        single = works[self.kind]
        work = self.count * single
        origin = passed[self.start]
        before = passed[:-1] - origin
        # the latest time at which the device may have begun after a pause, less the work before that
        by_first, by_last = self.first - before, self.last - (before + work - single)
        begun = np.maximum(by_first, by_last)
        latest = np.maximum.accumulate(begun)
        source = np.maximum.accumulate(np.where(begun >= latest, np.arange(len(begun)), 0))
        previous = np.maximum(row - 1, 0)
        done = part * work[row]
        begins = np.stack(
            [
                np.where(row > self.start[row], latest[previous] + before[row] + done, -np.inf),
                self.first[row] + done,
                self.first[row] + part * (self.last[row] - self.first[row]) + single[row],
            ]
        )
        begun_by = begins.argmax(axis=0)
        return Finish(begins.max(axis=0), begun_by, source[previous], (by_last > by_first)[source[previous]])

    def slopes(self, finish: Finish, limits: Limits, chosen: Integers) -> Floats:
        """Of each chosen limit and each kind: the launches since the device began after its last pause."""
        row, source, begun_by = limits.row[chosen], finish.source[chosen], finish.begun_by[chosen]
        index = np.arange(len(chosen))
        since = self.counted[source]
        since[index, self.kind[source]] += np.where(finish.by_last[chosen], self.count[source] - 1, 0.0)
        launches = np.where((begun_by == 0)[:, None], self.counted[row] - since, 0.0)
        launches[index, self.kind[row]] += np.where(begun_by == 2, 1.0, limits.part[chosen] * self.count[row])
        return launches


def rows_of(segments: Sequence[Segment], stream: Stream, kinds: Mapping[Kind, int]) -> Rows:
    """The rows of a stream. `kinds`: the index of each kind."""
    origin = segments[0].begin
    rows: list[tuple[int, ...]] = []
    drains: dict[int, int] = {}
    for index, segment in enumerate(segments):
        for launches in segment.launches:
            if launches.stream is stream:
                kind = kinds[segment.position, stream]
                first, last = launches.first - origin, launches.last - origin
                rows.append((index, kind, launches.count, first, last, segment.blocked))
        if stream in segment.drains and rows:
            drains.setdefault(len(rows) - 1, segment.end - origin)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    kind_, count = columns[1], columns[2].astype(np.float64)
    first_, last_, blocked = columns[3:] * NS
    counted = np.zeros((len(rows) + 1, len(kinds)))
    counted[np.arange(len(rows)) + 1, kind_] = count
    drained = np.full(len(rows), np.inf)
    drained[list(drains)] = np.array(list(drains.values())) * NS
    start = np.zeros(len(rows), dtype=np.int64)
    start[1:] = np.where(np.isfinite(drained[:-1]), np.arange(1, len(rows)), 0)
    start = np.maximum.accumulate(start)
    return Rows(stream, columns[0], kind_, count, first_, last_, blocked, start, counted.cumsum(axis=0), drained)


def limits_of_waits(rows: Rows, segments: Sequence[Segment]) -> Limits:
    """A wait ends when the stream has done all launches."""
    waits = [index for index, segment in enumerate(segments) if rows.stream in segment.drains]
    row = np.searchsorted(rows.segment, waits, side="right") - 1
    cause, row = np.array(waits, dtype=np.int64)[row >= 0], row[row >= 0]
    row, position = np.unique(row, return_index=True)  # a second wait finds the stream empty
    cause = cause[position]
    is_exact = np.array([segments[index].wait > SHORTEST_WAIT for index in cause], dtype=np.bool_)
    return Limits(row, np.ones(len(row)), rows.drained[row], cause, is_exact)


def limits_of_queue(rows: Rows) -> Limits:
    """A launch returns when at most 1,024 launches are not done.

    If launches of a row were blocked, the device was at its limit at one of them. The limit may be at the first launch,
    at the last, or where the launch that must be done is the last of its own row: there the device's pace changes.
    """
    ends = rows.counted.sum(axis=1)[1:]
    begins = ends - rows.count
    own = np.maximum(rows.last - rows.first - rows.blocked, 0.0)
    index = np.arange(len(ends))
    launched = np.concatenate([begins + 1, ends + QUEUE, ends - 1])
    cause = np.concatenate([index, np.searchsorted(ends, ends + QUEUE), index])
    launched, cause = launched[cause < len(ends)], cause[cause < len(ends)]
    done = launched - QUEUE
    row = np.searchsorted(ends, done)
    pending = (done > 0) & (row >= rows.start[cause])
    launched, cause, done, row = launched[pending], cause[pending], done[pending], row[pending]
    time = rows.last[cause] - own[cause] * (ends[cause] - launched) / rows.count[cause]
    part = (done - begins[row]) / rows.count[row]
    return Limits(row, part, time, rows.segment[cause], rows.blocked[cause] > SHORTEST_BLOCK * NS)
