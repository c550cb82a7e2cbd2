"""Replays the segments of a thread on a device, to find how long they would take if the thread did something faster.

Two clocks run: one of the thread, and one of the device for each stream. At a full queue, the thread stops until the
device has done the launch that is 1,024 before. At a wait, it stops until the streams are empty.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from otel_zernel_libraries.training.device.segments import QUEUE, Kind, Segment
from otel_zernel_libraries.training.device.streams import NS

_MOST: Final = QUEUE // 2
"""Launches of a row; longer rows are split, so that a full queue has launches of other rows."""
_PIECES: Final = 64
"""Pieces of a row, at most about."""


def replay(
    segments: Sequence[Segment], works: Mapping[Kind, float], without: Callable[[Segment], float] | None = None
) -> float:
    """Seconds that the segments take.

    `works`: seconds of work for a launch of each kind. `without`: how much (ns) of its own time the thread is to spend
    less in a segment.
    """
    now = 0.0
    queues = {stream: _Queue() for _, stream in works}
    for segment in segments:
        begin, blocked, until = segment.begin, segment.blocked, segment.end - segment.wait
        own = until - begin - blocked
        scale = NS if without is None or own <= 0 else NS * max(1.0 - without(segment) / own, 0.0)
        for launches in segment.launches:
            stream, first, last = launches.stream, launches.first, launches.last
            if first > begin:
                now += (first - begin) * scale
            launching = max(last - first - blocked, 0) * scale
            work = works[segment.position, stream]
            now = queues[stream].launch(now, launching, launches.count, work)
            if last > begin:
                begin = last
        if until > begin:
            now += (until - begin) * scale
        for stream in segment.drains:
            if stream in queues and queues[stream].done > now:
                now = queues[stream].done
    return now


class _Queue:
    """The launches of one stream that the device has not done."""

    __slots__ = ("_launched", "_rows", "done")

    def __init__(self) -> None:
        self.done = 0.0
        """When (s) the device will have done all launches."""
        self._launched = 0
        self._rows: deque[tuple[int, int, float, float]] = deque()
        """Of each row: the launches before it, and up to its end, and when (s) the device begins and ends it."""

    def launch(self, now: float, own: float, count: int, work: float) -> float:
        """Launches a row, which takes the thread `own` seconds; returns when (s) it has made the last launch."""
        size = max(_MOST, count // _PIECES)
        while count > size:
            part = own * size / count
            now = self._launch(now, part, size, work)
            own, count = own - part, count - size
        return self._launch(now, own, count, work)

    def _launch(self, now: float, own: float, count: int, work: float) -> float:
        last, rows, launched = now + own, self._rows, self._launched
        while rows and rows[0][3] <= now:
            rows.popleft()
        last_done = launched + count - QUEUE
        if rows and last_done > rows[0][0]:
            last = self._room(last, own, count)
        begun = max(now, self.done)
        ended = begun + count * work
        self.done = max(last + work, ended)
        self._launched = launched + count
        rows.append((launched, launched + count, begun, self.done))
        return last

    def _room(self, last: float, own: float, count: int) -> float:
        """When (s) the last launch of a row is made, if the queue has room for it at `last` unless it is full."""
        # the launches that must be done before the first and before the last launch return
        first_done, last_done = self._launched + 1 - QUEUE, self._launched + count - QUEUE
        for before, end, begun, ended in self._rows:
            if end >= first_done:
                pace = (ended - begun) / (end - before)
                for done in (max(first_done, before), min(last_done, end)):
                    last = max(last, begun + pace * (done - before) + own * (last_done - done) / count)
            if end >= last_done:
                break
        return last
