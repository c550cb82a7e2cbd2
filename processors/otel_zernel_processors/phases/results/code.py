"""Joins the stacks of a process with the positions of its training thread.

A stack has the thread's latest mark and an activity, but no position. The ledger has the positions of the time after
each mark. So the time of a stack is divided in proportion to the ledger's time with the same mark and activity.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from otel_zernel_libraries.training.causes.job import ON_CPU
from otel_zernel_libraries.training.code_times import CodeTimes, PlacedStack
from otel_zernel_libraries.training.interval_spans import OPERATORS
from otel_zernel_libraries.training.ledger import Activity, Position, Segment
from otel_zernel_libraries.training.stacks import CodeLine, ProcessStacks, StackTime
from otel_zernel_processors.phases.scopes.steps import Step

_MOST: Final = 1_024
"""Different stacks of a part of the window. The time of more is left out."""
_HELD: Final = 16
"""Records that wait for the steps of their time."""
_MOST_MARKS: Final = 64
"""Different kinds of marks: a sender of spans may name others at will."""

Mark = tuple[str, bool]
"""The kind of a mark, and whether it is a begin."""
_Doing = Activity | None
"""An activity; None for all of them on a CPU, which samples divide."""


class _StackKey(NamedTuple):
    thread: int
    worker: int
    mark: Mark
    activity: Activity
    lines: tuple[CodeLine, ...]


class _Part:
    """A part of the window: the stacks of a process, and the time of its training thread by mark."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.seconds = 0.0
        """The time that its records cover."""
        self.stacks: Counter[_StackKey] = Counter()
        """Seconds."""
        self.positions: dict[tuple[Mark, _Doing], Counter[Position]] = {}
        """The time (ns) after a mark with an activity, by position."""

    def add_stack(self, key: _StackKey, seconds: float) -> bool:
        """Adds the time of a stack. Returns whether there is room."""
        if key not in self.stacks and len(self.stacks) >= _MOST:
            return False
        self.stacks[key] += seconds  # type: ignore[assignment]  # a float
        return True

    def add_time(self, mark: Mark, doing: _Doing, position: Position, time: float) -> None:
        """Adds time (ns) of the training thread."""
        if (mark, doing) not in self.positions:
            if len(self.positions) >= _MOST_MARKS * len(Activity):
                return
            self.positions[mark, doing] = Counter()
        self.positions[mark, doing][position] += time  # type: ignore[assignment]  # a float


class NewestCode(NamedTuple):
    """The stacks of the records that were joined last."""

    start: int
    end: int
    """From when to when (ns)."""
    code: CodeTimes


class CodeHistory:
    """The stacks of a process in the last window, and the marks that its training thread has made meanwhile."""

    def __init__(
        self, window: int, drop: Callable[[int, str], None], *, is_expected: bool = False, keeps_newest: bool = False
    ) -> None:
        """`window`: in ns. `drop` counts stacks that are too many. Without `is_expected`, the first record only shows
        that others follow: most processes have none, and their steps need no work. `keeps_newest`: for `take_newest`.
        """
        self._is_expected = is_expected
        self._window = window
        self._drop = drop
        self._parts: deque[_Part] = deque()
        """Each has half of the window, or the time of a longer segment."""
        self._newest = _Part(0) if keeps_newest else None
        """The stacks since the last call of `take_newest`."""
        self._waiting: deque[tuple[int, ProcessStacks]] = deque()
        self._thread = 0
        self._covered = 0
        """When (ns) the latest record was made that is joined; before it, when the first step began."""
        self._until = 0
        """When (ns) the latest step ended."""
        self._mark: Mark = ("", False)
        """The latest mark of its steps so far."""
        self._without_step = 0

    def add(self, stacks: ProcessStacks, time: int) -> None:
        """Adds the stacks of a record of this time (ns). They wait for the steps of that time."""
        if not self._is_expected:
            self._is_expected = True
            self._without_step += len(stacks.stacks)
            return
        self._waiting.append((time, stacks))
        if len(self._waiting) > _HELD:
            self._join_next()

    def add_step(self, step: Step, segments: Iterable[Segment], position: Position | None = None) -> None:
        """Adds a step of the thread that trains, after the ones before. `position` replaces the positions of its
        segments."""
        if not self._is_expected:
            return
        self._thread = step.thread
        self._covered = self._covered or step.start
        marks = _marks(step)
        at = 0
        for start, end, moment, times, _ in segments:
            if not self._parts or start > self._parts[-1].since + self._window // 2:
                self._parts.append(_Part(start))
                while self._parts[0].since < start - self._window:
                    self._parts.popleft()
            part = self._parts[-1]
            spent, lasted, since = times or ((moment, end - start),), max(end - start, 1), start
            while since < end:
                while at < len(marks) and marks[at][0] <= since:
                    self._mark = marks[at][1]
                    at += 1
                until = min(marks[at][0], end) if at < len(marks) else end
                for of, time in spent:
                    doing = None if of.activity in ON_CPU else of.activity
                    part.add_time(self._mark, doing, position or of.position, time * (until - since) / lasted)
                since = until
            self._until = max(self._until, end)
        self._mark = marks[-1][1] if marks else self._mark
        while self._waiting and self._waiting[0][0] <= self._until:
            self._join_next()

    def take_without_step(self) -> int:
        """The stacks since the last call that are older than all steps."""
        count, self._without_step = self._without_step, 0
        return count

    def finish(self) -> None:
        """Joins the records that no step follows."""
        while self._waiting:
            self._join_next()

    @property
    def times(self) -> CodeTimes:
        """The time of each stack in the window, by position."""
        return self._times_of(self._parts)

    def take_newest(self) -> NewestCode | None:
        """The stacks of the records since the last call, by position as in the window; None without any."""
        newest = self._newest
        if newest is None or not newest.stacks:
            return None
        self._newest = _Part(self._covered)
        return NewestCode(newest.since, self._covered, self._times_of([newest]))

    def _times_of(self, parts: Collection[_Part]) -> CodeTimes:
        seconds = sum(part.seconds for part in parts)
        by_mark = _by_mark(part.positions for part in self._parts)
        stacks: Counter[_StackKey] = Counter()
        for part in parts:
            stacks.update(part.stacks)
        return CodeTimes(
            seconds, [placed for key, time in stacks.items() for placed in self._placed(key, time, by_mark)]
        )

    def _join_next(self) -> None:
        time, record = self._waiting.popleft()
        if not self._parts or time <= self._covered:
            self._without_step += len(record.stacks)
            return
        parts = [self._parts[-1], *([self._newest] if self._newest else ())]
        # after the last step, the thread may do anything
        seconds = (min(time, max(self._until, self._covered)) - self._covered) / 1e9
        for part in parts:
            part.since = part.since or self._covered
            part.seconds += seconds
        self._covered = time
        for stack in record.stacks:
            if lines := _lines(stack, record.lines):
                key = _StackKey(stack.thread, stack.worker, (stack.mark, stack.is_inside), stack.activity, lines)
                has_room = [part.add_stack(key, stack.seconds) for part in parts]
                if not all(has_room):
                    self._drop(1, "max_stacks")

    def _placed(
        self, key: _StackKey, seconds: float, by_mark: Mapping[object, Counter[Position]]
    ) -> Iterator[PlacedStack]:
        """The parts of a stack in each position."""
        if key.worker or key.thread != self._thread:
            at = Position.LOAD if key.worker else Position.UNKNOWN
            yield PlacedStack(seconds, key.activity, key.lines, at, key.worker, is_other=True)
            return
        doing = None if key.activity in ON_CPU else key.activity
        known = next(filter(None, (by_mark.get(at) for at in _from_exact(key.mark, doing))), Counter())
        total = known.total()
        for position, time in known.items() or ((Position.UNKNOWN, 1),):
            yield PlacedStack(seconds * time / (total or 1), key.activity, key.lines, position)


def _marks(step: Step) -> list[tuple[int, Mark]]:
    """The begins and ends of the intervals of its thread, in order. Where several meet, inner ones end first."""
    edges = []
    for interval in step.intervals:
        if interval.thread == step.thread:
            kind = OPERATORS if interval.operators else interval.kind
            edges.append((interval.end, False, -interval.start, kind))
            if interval.start < interval.end:
                edges.append((interval.start, True, -interval.start, kind))
    return [(time, (kind, is_inside)) for time, is_inside, _, kind in sorted(edges)]


def _from_exact(mark: Mark, doing: _Doing) -> tuple[object, object, object]:
    """The keys of a mark, the most exact first: a short wait may not be in the ledger."""
    return (mark, doing), (mark[0], doing), mark


def _by_mark(parts: Iterable[Mapping[tuple[Mark, _Doing], Counter[Position]]]) -> Mapping[object, Counter[Position]]:
    """The time in each position, by each of the keys."""
    sums: dict[object, Counter[Position]] = {}
    for part in parts:
        for (mark, doing), positions in part.items():
            for key in _from_exact(mark, doing):
                sums.setdefault(key, Counter()).update(positions)
    return sums


def _lines(stack: StackTime, lines: tuple[CodeLine, ...]) -> tuple[CodeLine, ...]:
    """The lines of a stack; empty if the record lacks one of them."""
    if any(at >= len(lines) for at in stack.lines):
        return ()
    return tuple(lines[at] for at in stack.lines)
