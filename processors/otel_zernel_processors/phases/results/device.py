"""What the GPU of a process did, by what the training thread did meanwhile."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from otel_zernel_libraries.training.device import Launches, Segment, device_use
from otel_zernel_libraries.training.ledger import Moment, Position
from otel_zernel_processors.phases.scopes.timeline import ClosedStep

_DRAINS: Final = frozenset(
    {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cuStreamSynchronize", "cuCtxSynchronize", "cudaMemcpy"}
)
"""The waits after which a stream is empty. A wait for an event may leave later launches."""
_WINDOW: Final = 10_000_000_000
"""ns of a thread that are solved together: long enough for many steps."""
_MOST: Final = 2_000
"""Segments that are solved together, at most."""
_DENSE: Final = 2_000_000_000
"""ns: a driver's reading covers about a second, so it says nothing about a longer time."""
_COVERED: Final = 0.8
"""The part of a window that readings must cover."""
_BACKWARD: Final = 2
"""Kernels of a backward pass for each kernel of a forward pass, if they are not counted."""


class DeviceTimes:
    """The sums of one process. Only the first thread that launches kernels counts."""

    def __init__(self) -> None:
        self.starved_s: Counter[Moment] = Counter()
        """Seconds in which the device certainly had nothing to do."""
        self.busy_s = 0.0
        """Seconds in which it certainly worked."""
        self.undetermined_s = 0.0
        self.is_over = False
        """Whether no further steps come."""
        self._thread: int | None = None
        self._segments: list[Segment] = []
        self._readings: deque[tuple[int, int, float]] = deque(maxlen=1_000)

    @property
    def is_known(self) -> bool:
        """Whether the process has a device: a thread has launched kernels."""
        return self._thread is not None

    def add_step(self, closed: ClosedStep) -> None:
        step, parts = closed.step, closed.attribution.segments
        if self._thread is None and any(part.work and part.work.launches for part in parts):
            self._thread = step.thread
        if step.thread != self._thread:
            return
        drained = {one.end for one in step.intervals if one.kind == "sync" and one.name in _DRAINS}
        for part in parts:
            if self._segments and self._segments[-1].end != part.start:
                self._solve()
            if part.work is None:
                self._solve()
                self.undetermined_s += (part.end - part.start) / 1e9
            else:
                self._segments.append(Segment.of(part, is_drained=part.end in drained))
                if len(self._segments) >= _MOST:
                    self._solve()

    def add_reading(self, start: int, end: int, idle_s: float) -> None:
        """Adds a reading of the device, if no other process uses it: its idle time in [start, end) (ns)."""
        if end - start <= _DENSE:
            self._readings.append((start, end, idle_s))

    def close(self) -> None:
        """Solves what is complete, before a report."""
        if self._segments and (self.is_over or self._segments[-1].end - self._segments[0].begin >= _WINDOW):
            self._solve()

    def _solve(self) -> None:
        segments, self._segments = self._segments, []
        if not segments:
            return
        begin, end = segments[0].begin, segments[-1].end
        seen, sees_queue = _with_backward(segments)
        use = device_use(seen, self._busy_share(begin, end), sees_queue=sees_queue)
        if use is None:
            self.undetermined_s += (end - begin) / 1e9
            return
        starved = {moment: bounds.low for moment, bounds in use.starved_by_moment().items() if bounds.low > 0}
        busy = min(use.busy.low, use.seconds - sum(starved.values()))
        self.starved_s.update(starved)
        self.busy_s += busy
        self.undetermined_s += use.seconds - sum(starved.values()) - busy

    def _busy_share(self, begin: int, end: int) -> float | None:
        """The part of the time in which the device was busy; None if readings do not cover the time."""
        while self._readings and self._readings[0][1] <= begin:
            self._readings.popleft()
        inside = [(until - since, idle) for since, until, idle in self._readings if since < end]
        covered = sum(lasted for lasted, _ in inside) / 1e9
        if covered < _COVERED * (end - begin) / 1e9:
            return None
        return min(max(1.0 - sum(idle for _, idle in inside) / covered, 0.0), 1.0)


def _with_backward(segments: Sequence[Segment]) -> tuple[Sequence[Segment], bool]:
    """Adds the launches of backward passes, if they lack; and whether they do not. PyTorch makes them on threads of its
    own, so the counters of the training thread do not have them. They are spread over the pass."""
    counts = Counter[Position]()
    for segment in segments:
        counts[segment.position] += sum(launches.count for launches in segment.launches)
    passes = sum(segment.position is Position.BACKWARD for segment in segments)
    if not passes or counts[Position.BACKWARD] or not counts[Position.FORWARD]:
        return segments, True
    count = max(_BACKWARD * counts[Position.FORWARD] // passes, 1)
    added = [
        replace(segment, launches=(Launches(count, segment.begin, segment.end - segment.wait),))
        if segment.position is Position.BACKWARD
        else segment
        for segment in segments
    ]
    return added, False
