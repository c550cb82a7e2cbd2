"""The timeline of one process: late and disordered spans in, closed steps with their ledgers out."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from otel_zernel_processors.phases.intake.intervals import WORK, Mark
from otel_zernel_processors.phases.scopes.attribution import Ledger, Span, ledger_in_turns, length, union
from otel_zernel_processors.phases.scopes.steps import Step, StepCutter

_COLLECTIVES = 1024
"""How many are held; while one is in flight, a wait for the GPU is a wait for it."""
_SCOPES = WORK | {"data_loading"}
"""What the training thread is known by."""
_LOSSES = 64
"""Stretches of loss that are told apart; of more, the oldest are taken together."""
_MANY = 250
"""Marks of a step whose ledger takes more than a ms."""

Ordered = tuple[int, int, int, str, str]
"""What orders marks and tells them apart: end, start, thread, kind and name."""


@dataclass(slots=True)
class ClosedStep:
    """A step of which nothing more will be known."""

    step: Step
    collectives: list[Mark]
    """Those that began in it, on any thread."""
    flights: list[Span]
    """When collectives were in flight."""
    bridge_ns: int
    _ledgers: list[Ledger] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        """Its time, divided."""
        for _ in self.settle():
            pass
        return self._ledgers[0]

    def settle(self) -> Iterator[None]:
        """Makes the ledger, once; of a step with very many marks in pieces."""
        if not self._ledgers:
            for made in ledger_in_turns(self.step, self.flights, self.bridge_ns):
                if made is not None:
                    self._ledgers.append(made)
                if self.is_long:
                    yield

    @property
    def is_long(self) -> bool:
        """Whether it has so many marks that all that is done with them takes a while."""
        return len(self.step.marks) > _MANY


class Timeline:
    """Puts the marks of a process in order and cuts those of its training thread into steps.

    The training thread is the first that loads data, until another one trains and it never did. Marks are taken in the
    order of their ends as time goes on, whatever batches they came in, so that the same spans always give the same
    steps.
    """

    def __init__(self, bridge_ns: int, max_marks: int, drop: Callable[[int, str], None] | None = None) -> None:
        """Holds at most `max_marks` marks; see `ledger` for `bridge_ns`. `drop` counts what is not held until the
        step that it belongs to is closed."""
        self._bridge_ns = bridge_ns
        self._max_marks = max_marks
        self._drop = drop
        self._waiting: list[tuple[Ordered, Mark]] = []
        self._first = 0
        self._in_order = True
        self._last: Ordered | None = None
        self._cutter = StepCutter(bridge_ns)
        self._thread: int | None = None
        self._trained = False
        self._collectives: deque[Mark] = deque(maxlen=_COLLECTIVES)
        self._losses: list[Span] = []
        self._doubted: list[Span] = []
        self._began = self._closed_until = 0
        self.doubtful_ns = 0
        """Time of steps that were closed before it was known that events in it had been lost."""
        self.has_scopes = False
        """Whether any thread was seen to load data or to train."""
        self.has_loads = False
        """Whether any was seen to load data: there are no steps without."""
        self.until = 0
        """Everything up to here (ns) has been taken."""
        self.last_end = 0
        """The end (ns) of the last mark seen."""

    def add(self, mark: Mark) -> str | None:
        """Takes a mark; or says why it is lost, and its time will be unknown."""
        end = mark.end
        late = end <= self.until
        if late or len(self._waiting) >= self._max_marks:
            self.lose(mark.start, end)
            return "late" if late else "max_spans"
        if end < self._first or not self._waiting:
            self._first = end
        if end > self.last_end:
            self.last_end = end
        self._waiting.append((mark[:5], mark))
        self._in_order = False
        if not self.has_loads and mark.kind in _SCOPES:
            self.has_scopes, self.has_loads = True, mark.kind == "data_loading"
        return None

    def lose(self, start: int, end: int) -> None:
        """Notes that events between these times (ns) were lost."""
        if start < self._closed_until:
            self._doubt(max(start, self._began), min(end, self._closed_until))
        if self._losses and start <= self._losses[-1][1] <= end:
            start = min(start, self._losses.pop()[0])
        self._losses.append((start, end))
        if len(self._losses) > _LOSSES:
            (start, one), (other, end) = self._losses[:2]
            self._losses[:2] = [(min(start, other), max(one, end))]

    def _doubt(self, start: int, end: int) -> None:
        """Counts time of steps that are closed, once."""
        doubted = union([*self._doubted, (start, end)])
        self.doubtful_ns += length(doubted) - length(self._doubted)
        self._doubted = doubted[-_LOSSES:]

    def is_behind(self, until: int) -> bool:
        """Whether marks that ended by `until` (ns) are still to be taken."""
        return bool(self._waiting) and self._first <= until

    def advance(self, until: int, at_most: int | None = None) -> Iterator[ClosedStep]:
        """The steps that are closed once everything that ended by `until` (ns) is known, or `at_most` marks of it."""
        for identity, mark in self._next(until, at_most) if self.is_behind(until) else ():
            if identity != self._last:  # a batch sent anew brings its spans twice
                for step in self._take(mark):
                    yield self._closed(step)
            self._last = identity
        if not self.is_behind(until):
            self.until = max(self.until, until)

    def end(self) -> Iterator[ClosedStep]:
        """What is left when the process has ended, the last step unfinished."""
        yield from self.advance(max(self.until, self.last_end))
        yield from map(self._closed, self._cutter.end())

    def _next(self, until: int, at_most: int | None) -> list[tuple[Ordered, Mark]]:
        """Takes out the marks that come next. Most came in order, which makes putting them in order cheap."""
        waiting = self._waiting
        if not self._in_order:
            waiting.sort(key=itemgetter(0))
            self._in_order = True
        ready = bisect_right(waiting, until, key=_end)
        ready = ready if at_most is None else min(ready, at_most)
        some = waiting[:ready]
        del waiting[:ready]
        self._first = waiting[0][1].end if waiting else 0
        return some

    def _take(self, mark: Mark) -> list[Step]:
        if mark.kind == "collective":
            self._hold(mark)
        steps = [] if self._trained else self._choose_thread(mark)
        if mark.thread == self._thread:
            steps += self._cutter.feed(mark)
            if self._cutter.pending >= self._max_marks:
                steps += self._cutter.cut()
        return steps

    def _hold(self, collective: Mark) -> None:
        """Keeps a collective for the steps that are not closed yet."""
        if len(self._collectives) == _COLLECTIVES and self._drop:
            begins = self._cutter.begins
            if begins is not None and self._collectives[0].end > begins:
                self._drop(1, "max_collectives")
        self._collectives.append(collective)

    def _choose_thread(self, mark: Mark) -> list[Step]:
        steps: list[Step] = []
        works = mark.kind in WORK
        if self._thread is None and mark.kind in _SCOPES:
            self._thread = mark.thread
        elif works and mark.thread != self._thread:
            steps += self._cutter.end()
            self._thread = mark.thread
        self._trained = works and mark.thread == self._thread
        return steps

    def _closed(self, step: Step) -> ClosedStep:
        step.lossy = any(start < step.end and step.start < end for start, end in self._losses)
        flights = [(mark.start, mark.end) for mark in self._collectives if mark.in_flight]
        began = [mark for mark in self._collectives if step.start <= mark.start < step.end]
        while self._collectives and self._collectives[0].end <= step.end:
            self._collectives.popleft()
        self._began, self._closed_until = self._began or step.start, max(self._closed_until, step.end)
        return ClosedStep(step, began, flights, self._bridge_ns)


def _end(waiting: tuple[Ordered, Mark]) -> int:
    return waiting[1].end
