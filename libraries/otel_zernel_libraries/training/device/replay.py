"""Replays the threads of a job on their devices, to find how long they would take without something.

Two clocks run for each thread: its own, and one of the device for each stream. At a full queue, the thread stops until
the device has done the launch that is 1,024 before. At a wait, it stops until the streams are empty. At a collective,
the threads of all ranks leave together, once the last of them has come and the transfer is over.

All what-ifs are replayed at once: a column of each array belongs to one of them.
"""

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from otel_zernel_libraries.training.device.segments import QUEUE, SHORTEST_WAIT, Kind, Segment
from otel_zernel_libraries.training.device.streams import NS, Flags, Floats

_MOST: Final = QUEUE // 2
"""Launches of a row; longer rows are split, so that a full queue has launches of other rows."""
_PIECES: Final = 64
"""Pieces of a row, at most about."""
_Meetings = Generator[Floats, Floats, Floats]
"""Yields when a thread comes to each collective, is sent when all leave it, and returns the ends of its segments."""


class Replayed(NamedTuple):
    """The segments of a thread, and what it is to do less."""

    segments: Sequence[Segment]
    works: Mapping[Kind, float | Floats]
    """Seconds of work for a launch of each kind, also without each cause."""
    removed: Floats
    """Seconds of its own time, of each segment (rows) without each cause (columns)."""


def replay(threads: Sequence[Replayed], transfers: Floats | None = None, joined: Flags | None = None) -> list[Floats]:
    """Of each thread: when (s) each segment (rows) ends without each cause (columns).

    The ranks meet at the end of each segment that `meets`. `transfers`: the seconds of each collective (rows), and
    `joined`: whether its ranks wait for each other. By default transfers take no time, and ranks wait.
    """
    running = [_run(thread) for thread in threads]
    ends: list[Floats | None] = [None] * len(threads)
    sent: list[Floats | None] = [None] * len(threads)
    at = 0
    while True:
        come: dict[int, Floats] = {}
        for index, thread in enumerate(running):
            if ends[index] is None:
                try:
                    come[index] = thread.send(sent[index])  # type: ignore[arg-type]  # None starts a generator
                except StopIteration as stopped:
                    ends[index] = stopped.value
        if not come:
            return [end for end in ends if end is not None]
        last = np.max(list(come.values()), axis=0)
        took = 0.0 if transfers is None else transfers[at]
        for index, arrived in come.items():
            sent[index] = (last if joined is None else np.where(joined[at], last, arrived)) + took
        at += 1


def meet(own: Floats, transfers: Floats, joined: Flags) -> Floats:
    """`replay` for threads without a device, whose ranks meet in every interval: the seconds of each interval.

    `own`: seconds, by rank, interval and what-if. Ranks leave a collective together, so each interval stands alone. If
    they do not wait for each other, the mean of the ranks counts.
    """
    durations: Floats = np.where(joined, own.max(axis=0), own.mean(axis=0)) + transfers
    return durations


def _run(thread: Replayed) -> _Meetings:
    segments, works, removed = thread
    now = np.zeros(removed.shape[1])
    queues = {stream: _Queue(now) for _, stream in works}
    own = np.array([max(segment.own, 1) for segment in segments])[:, None] * NS
    scales = np.maximum(1.0 - removed / own, 0.0) * NS
    ends = np.empty_like(removed)
    for index, segment in enumerate(segments):
        begin, blocked, until = segment.begin, segment.blocked, segment.end - segment.wait
        scale = scales[index]
        for launches in segment.launches:
            stream, first, last = launches.stream, launches.first, launches.last
            if first > begin:
                now = now + (first - begin) * scale
            launching = max(last - first - blocked, 0) * scale
            now = queues[stream].launch(now, launching, launches.count, works[segment.position, stream])
            if last > begin:
                begin = last
        rest = until - begin if segment.launches else until - begin - blocked
        if rest > 0:
            now = now + rest * scale
        # a wait that is not known to empty a stream is, for example, one for an event: it ends with the launches so far
        waits_for = segment.drains or (queues if segment.wait > SHORTEST_WAIT and not segment.meets else ())
        for stream in waits_for:
            if stream in queues:
                now = np.maximum(now, queues[stream].done)
        if segment.meets:
            now = yield now
        ends[index] = now
    return ends


class _Row(NamedTuple):
    """Launches in a queue."""

    before: int
    """The launches before it."""
    end: int
    begun: Floats
    """When (s) the device begins them."""
    ended: Floats


class _Queue:
    """The launches of one stream that the device may not have done."""

    __slots__ = ("_launched", "_rows", "done")

    def __init__(self, now: Floats) -> None:
        self.done = now
        """When (s) the device will have done all launches."""
        self._launched = 0
        self._rows: deque[_Row] = deque()

    def launch(self, now: Floats, own: Floats, count: int, work: float | Floats) -> Floats:
        """Launches a row, which takes the thread `own` seconds; returns when (s) it has made the last launch."""
        size = max(_MOST, count // _PIECES)
        while count > size:
            part = own * (size / count)
            now = self._launch(now, part, size, work)
            own, count = own - part, count - size
        return self._launch(now, own, count, work)

    def _launch(self, now: Floats, own: Floats, count: int, work: float | Floats) -> Floats:
        rows, launched = self._rows, self._launched
        while rows and rows[0].end <= launched - QUEUE:
            rows.popleft()
        last = now + own
        if rows and launched + count - QUEUE > rows[0].before:
            last = self._room(last, own, count)
        begun = np.maximum(now, self.done)
        self.done = np.maximum(last + work, begun + count * work)
        self._launched = launched + count
        rows.append(_Row(launched, launched + count, begun, self.done))
        return last

    def _room(self, last: Floats, own: Floats, count: int) -> Floats:
        """When (s) the last launch of a row is made, if the queue has room for it at `last` unless it is full."""
        # the launches that must be done before the first and before the last launch return
        first_done, last_done = self._launched + 1 - QUEUE, self._launched + count - QUEUE
        for before, end, begun, ended in self._rows:
            if end >= first_done:
                pace = (ended - begun) / (end - before)
                for done in (max(first_done, before), min(last_done, end)):
                    last = np.maximum(last, begun + pace * (done - before) + own * ((last_done - done) / count))
            if end >= last_done:
                break
        return last
