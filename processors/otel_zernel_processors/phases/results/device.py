"""What the GPU of a process did, by what the training thread did meanwhile."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from otel_zernel_libraries.training.causes import DeviceTime
from otel_zernel_libraries.training.device import SHARE_ERROR, DeviceUse, Launches, Segment, Stream, device_use
from otel_zernel_libraries.training.device.records import DeviceRecords
from otel_zernel_libraries.training.device.segments import Kind
from otel_zernel_libraries.training.interval_spans import DeviceSpan
from otel_zernel_libraries.training.ledger import Activity, Moment, Position
from otel_zernel_processors.phases.scopes.timeline import ClosedStep

_ONE: Final = frozenset({Stream.COMPUTE})
_ALL: Final = frozenset(Stream)
_DRAINS: Final = {
    "cudaStreamSynchronize": _ONE,
    "cuStreamSynchronize": _ONE,
    "cudaMemcpy": _ONE,
    "cudaDeviceSynchronize": _ALL,
    "cuCtxSynchronize": _ALL,
}
"""The waits that empty streams. A wait for an event may leave later launches. Most waits for one stream are for that of
the kernels: see `_contradicts`."""
_FEWEST_QUEUED: Final = 900
"""Launches in a full queue, at least."""
_CONTRADICTION: Final = 0.01
"""Blocked time by the time, or a difference of the busy share, from which on facts contradict each other."""
_WINDOW: Final = 10_000_000_000
"""ns of a thread that are solved together: long enough for many steps."""
_FIRST_WINDOW: Final = 2_000_000_000
"""ns that are solved first, and twice as many each time after that, so that the first answer comes soon."""
_MOST: Final = 2_000
"""Segments that are solved together, at most."""
_FEWEST: Final = 20
_SHORTEST: Final = 1_000_000_000
"""Fewer segments, or less time (ns), are not worth solving: they are undetermined."""
_KEPT: Final = 8
_REPLAYED: Final = 500
"""Solved windows that are kept for replays, and the segments that are enough for one."""
_DENSE: Final = 2_000_000_000
"""ns: a driver's reading covers about a second, so it says nothing about a longer time."""
_COVERED: Final = 0.8
"""The part of a window that readings must cover."""
_BACKWARD: Final = 2
"""Kernels of a backward pass for each kernel of a forward pass, if they are not counted."""
_RARE: Final = 10
"""The training thread itself may launch one kernel of a backward pass for so many of a forward pass."""


class _Solved(NamedTuple):
    """A window whose launches are known, and what the device did in it (s)."""

    segments: Sequence[Segment]
    works: Mapping[Kind, float]
    """Seconds of work for a launch of each kind."""
    busy: float
    starved: Mapping[Moment, float]
    seconds: float
    is_exact: bool
    """Whether the device's own records say so."""


class DeviceTimes:
    """The sums of one process. Only the first thread that launches kernels counts, until it has no steps for 10 s."""

    def __init__(self) -> None:
        self.starved_s: Counter[Moment] = Counter()
        """Seconds in which the device certainly had nothing to do."""
        self.busy_s = 0.0
        """Seconds in which it certainly worked. A kernel of NCCL that waits for other ranks works."""
        self.undetermined_s = 0.0
        self.is_over = False
        """Whether no further steps come."""
        self._solved: deque[_Solved] = deque(maxlen=_KEPT)
        self._thread: int | None = None
        self._until = 0
        """When (ns) its latest step ended."""
        self._window = _FIRST_WINDOW
        self._segments: list[Segment] = []
        self._readings: deque[tuple[int, int, float]] = deque(maxlen=1_000)
        self._records = DeviceRecords()

    @property
    def is_known(self) -> bool:
        """Whether the process has a device: a thread has launched kernels."""
        return self._thread is not None

    @property
    def solved(self) -> tuple[Sequence[Segment], Mapping[Kind, float]]:
        """The latest segments whose launches are known, which follow each other, and the work of a launch in them."""
        segments: list[Segment] = []
        works: dict[Kind, float] = {}
        for window in reversed(self._solved):
            if segments and (window.segments[-1].end != segments[0].begin or len(segments) >= _REPLAYED):
                break
            segments = [*window.segments, *segments]
            works = {**window.works, **works}
        return segments, works

    @property
    def latest(self) -> DeviceTime | None:
        """What the device did in the latest windows, as parts of their time. None if nothing is known."""
        seconds = sum(window.seconds for window in self._solved)
        if not seconds:
            return None
        starved: dict[Position, float] = {}
        for window in self._solved:
            for moment, lasted in window.starved.items():
                starved[moment.position] = starved.get(moment.position, 0.0) + lasted / seconds
        busy = sum(window.busy for window in self._solved) / seconds
        undetermined = max(1.0 - busy - sum(starved.values()), 0.0)
        is_exact = all(window.is_exact for window in self._solved)
        return DeviceTime(busy=busy, starved=starved, undetermined=undetermined, exact=is_exact)

    def add_step(self, closed: ClosedStep) -> None:
        step, parts = closed.step, closed.attribution.segments
        is_silent = self._thread is None or step.start - self._until > _WINDOW
        if is_silent and step.snapshots and any(part.work and part.work.launches for part in parts):
            self._thread = step.thread
        if step.thread != self._thread:
            return
        self._until = step.end
        drains = {wait.end: _DRAINS.get(wait.name, frozenset()) for wait in step.intervals if wait.kind == "sync"}
        for part in parts:
            if self._segments and self._segments[-1].end != part.start:
                self._solve()
            # a wait for other ranks is as long as they need: it says nothing about the device's own work
            is_own = part.moment.activity is not Activity.COLLECTIVE
            self._segments.append(Segment.of(part, drains.get(part.end, frozenset()) if is_own else frozenset()))
            if len(self._segments) >= _MOST:
                self._solve()

    def add_reading(self, start: int, end: int, idle_s: float) -> None:
        """Adds a reading of the device, if no other process uses it: its idle time in [start, end) (ns)."""
        if end - start <= _DENSE:
            self._readings.append((start, end, idle_s))

    def add_records(self, span: DeviceSpan) -> None:
        """Adds what the device has recorded of its own work."""
        self._records.add(span.start_ns, span.end_ns, span.busy)

    def close(self) -> None:
        """Solves what is complete, before a report. Records of the device may be late."""
        if not self._segments:
            return
        lasted = self._segments[-1].end - self._segments[0].begin
        is_late = 0 < self._records.until < self._segments[-1].end and lasted < 2 * _WINDOW
        if self.is_over or (lasted >= self._window and not is_late):
            self._window = min(2 * self._window, _WINDOW)
            self._solve()

    def _solve(self) -> None:
        """Solves the segments. What the device has not recorded yet is solved apart."""
        segments, self._segments = self._segments, []
        recorded = sum(segment.end <= self._records.until for segment in segments) if self._records.since else 0
        for part in (segments[:recorded], segments[recorded:]):
            self._solve_part(part)

    def _solve_part(self, segments: Sequence[Segment]) -> None:
        if not segments:
            return
        begin, end = segments[0].begin, segments[-1].end
        if len(segments) < _FEWEST or end - begin < _SHORTEST:
            self.undetermined_s += (end - begin) / 1e9
            return
        seen, sees_queue = _with_backward(segments)
        recorded = self._records.idle(segments) if self._records.covers(segments) else None
        share = self._busy_share(begin, end) if recorded is None else 1.0 - recorded.sum() / (end - begin) * 1e9
        # a kernel of NCCL is busy while it waits for other ranks, which is no work of the launches
        waited = sum(segment.activities.get(Activity.COLLECTIVE, 0) for segment in segments)
        of_launches = share if waited < _CONTRADICTION * (end - begin) else None
        use = device_use(seen, of_launches, sees_queue=sees_queue)
        if use and recorded is None and _contradicts(use, of_launches, sees_queue=sees_queue):
            seen = [replace(segment, drains=frozenset()) if segment.drains == _ONE else segment for segment in seen]
            use = device_use(seen, of_launches, sees_queue=sees_queue)
        if use is None:
            self.undetermined_s += (end - begin) / 1e9
            return
        if recorded is not None:
            use, share = replace(use, idle=recorded[None], margins=np.zeros((2, len(recorded)))), None
        self._records.forget(end)
        starved = {moment: bounds.low for moment, bounds in use.starved_by_moment().items() if bounds.low > 0}
        least = 0.0 if share is None else (share - SHARE_ERROR) * use.seconds
        busy = min(max(use.busy.low, least), use.seconds - sum(starved.values()))
        self._solved.append(_Solved(use.segments, use.works, busy, starved, use.seconds, recorded is not None))
        self.starved_s.update(starved)
        self.busy_s += busy
        self.undetermined_s += use.seconds - sum(starved.values()) - busy

    def _busy_share(self, begin: int, end: int) -> float | None:
        """The part of the time in which the device was busy; None if readings do not cover the time."""
        while self._readings and self._readings[0][1] <= begin:
            self._readings.popleft()
        inside = [(until - since, idle) for since, until, idle in self._readings if begin <= since and until <= end]
        covered = sum(lasted for lasted, _ in inside) / 1e9
        if covered < _COVERED * (end - begin) / 1e9:
            return None
        return min(max(1.0 - sum(idle for _, idle in inside) / covered, 0.0), 1.0)


def _contradicts(use: DeviceUse, share: float | None, *, sees_queue: bool) -> bool:
    """Whether waits for one stream were not for the stream of the kernels: the device was busy for longer than it can
    have been after them, or its queue was full after too few launches."""
    if share is not None and use.busy.high < (share - SHARE_ERROR - _CONTRADICTION) * use.seconds:
        return True
    queued = blocked = 0
    for segment in use.segments if sees_queue else ():
        queued += sum(launches.count for launches in segment.launches)
        blocked += segment.blocked if queued < _FEWEST_QUEUED else 0
        queued = 0 if segment.drains else queued
    return blocked > _CONTRADICTION * use.seconds * 1e9


def _with_backward(segments: Sequence[Segment]) -> tuple[Sequence[Segment], bool]:
    """Adds the launches of backward passes, if they lack; and whether they do not. PyTorch makes them on threads of its
    own, which older recordings do not count. They are spread over the pass."""
    counts = Counter[Position]()
    for segment in segments:
        counts[segment.position] += sum(launches.count for launches in segment.launches)
    # a segment of waits alone is no pass
    is_pass = [segment.position is Position.BACKWARD and segment.own > 0 for segment in segments]
    passes = sum(is_pass)
    if not passes or counts[Position.BACKWARD] * _RARE >= counts[Position.FORWARD]:
        return segments, True
    count = max(_BACKWARD * counts[Position.FORWARD] // passes, 1)
    added = [
        replace(segment, launches=(Launches(count, segment.begin, segment.end - segment.wait),))
        if launches
        else segment
        for segment, launches in zip(segments, is_pass, strict=True)
    ]
    return added, False
