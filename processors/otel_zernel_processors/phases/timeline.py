"""The timeline of one process: late and disordered spans in, closed steps with their ledgers out."""

import heapq
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from otel_zernel_processors.phases.ledger import Ledger, Span, ledger
from otel_zernel_processors.phases.marks import WORK, Mark
from otel_zernel_processors.phases.steps import Step, StepCutter

_COLLECTIVES = 1024
_LOSSES = 64

Ordered = tuple[int, int, int, str, str]
"""What orders marks and tells them apart: end, start, thread, kind and name."""


class ClosedStep(NamedTuple):
    """A step of which nothing more will be known."""

    step: Step
    ledger: Ledger
    collectives: list[Mark]
    """Those that began in it, on any thread."""


class Timeline:
    """Puts the marks of a process in order and cuts those of its training thread into steps.

    The training thread is the first that loads data, until another one trains and it never did. Marks are taken in the
    order of their ends as time goes on, whatever batches they came in, so that the same spans always give the same
    steps.
    """

    def __init__(self, bridge_ns: int, max_marks: int) -> None:
        """Holds at most `max_marks` marks; see `ledger` for `bridge_ns`."""
        self._bridge_ns = bridge_ns
        self._max_marks = max_marks
        self._waiting: list[tuple[Ordered, int, Mark]] = []
        self._arrivals = 0
        self._last: Ordered | None = None
        self._cutter = StepCutter(bridge_ns)
        self._thread: int | None = None
        self._trained = False
        self._collectives: deque[Mark] = deque(maxlen=_COLLECTIVES)
        self._losses: deque[Span] = deque(maxlen=_LOSSES)
        self.has_scopes = False
        """Whether any thread was seen to load data or to train."""
        self.until = 0
        """Everything up to here (ns) has been taken."""
        self.last_end = 0
        """The end (ns) of the last mark seen."""

    def add(self, mark: Mark) -> str | None:
        """Takes a mark; or says why it is lost, and its time will be unknown."""
        late = mark.end <= self.until
        if late or len(self._waiting) >= self._max_marks:
            self.lose(mark.start, mark.end)
            return "late" if late else "max_spans"
        self._arrivals += 1
        heapq.heappush(self._waiting, (mark[:5], self._arrivals, mark))
        self.last_end = max(self.last_end, mark.end)
        self.has_scopes = self.has_scopes or mark.kind in WORK or mark.kind == "data_loading"
        return None

    def lose(self, start: int, end: int) -> None:
        """Notes that events between these times (ns) were lost."""
        if self._losses and start <= self._losses[-1][1] <= end:
            start = min(start, self._losses.pop()[0])
        self._losses.append((start, end))

    def advance(self, until: int) -> Iterator[ClosedStep]:
        """The steps that are closed once everything that ended by `until` (ns) is known."""
        while self._waiting and self._waiting[0][2].end <= until:
            identity, _, mark = heapq.heappop(self._waiting)
            if identity != self._last:  # a batch sent anew brings its spans twice
                yield from self._take(mark)
            self._last = identity
        self.until = max(self.until, until)

    def end(self) -> Iterator[ClosedStep]:
        """What is left when the process has ended, the last step unfinished."""
        yield from self.advance(max(self.until, self.last_end))
        yield from map(self._closed, self._cutter.end())

    def _take(self, mark: Mark) -> Iterator[ClosedStep]:
        if mark.kind == "collective":
            self._collectives.append(mark)
        yield from self._choose_thread(mark)
        if mark.thread == self._thread:
            yield from map(self._closed, self._cutter.feed(mark))
        if self._cutter.pending >= self._max_marks:
            yield from map(self._closed, self._cutter.end())

    def _choose_thread(self, mark: Mark) -> Iterator[ClosedStep]:
        works = mark.kind in WORK
        if self._thread is None and (works or mark.kind == "data_loading"):
            self._thread = mark.thread
        elif works and not self._trained and mark.thread != self._thread:
            yield from map(self._closed, self._cutter.end())
            self._thread = mark.thread
        self._trained = self._trained or (works and mark.thread == self._thread)

    def _closed(self, step: Step) -> ClosedStep:
        step.lossy = any(start < step.end and step.start < end for start, end in self._losses)
        flights = [(mark.start, mark.end) for mark in self._collectives if mark.in_flight]
        began = [mark for mark in self._collectives if step.start <= mark.start < step.end]
        while self._collectives and self._collectives[0].end <= step.end:
            self._collectives.popleft()
        return ClosedStep(step, ledger(step, flights, self._bridge_ns), began)
