"""The time of a step before, between and after its scopes, by its runs of operators.

A run shows when its first and its last operator began. The forward pass goes on up to its backward pass. The time
before a run, and after its last operator, is the load of a batch only with facts for it: see `scopes.batches`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

from otel_zernel_libraries.training.interval_spans import NO_EVIDENCE, Evidence
from otel_zernel_libraries.training.ledger import MOMENTS, Moment, Position, ThreadClock
from otel_zernel_processors.phases.intake.intervals import (
    AVERAGE,
    BATCH,
    NOISE,
    RUNS,
    UPDATES,
    Operators,
    ThreadInterval,
)
from otel_zernel_processors.phases.scopes.batches import (
    Load,
    is_blocked,
    leaves_pass,
    load_before,
    own_time,
    own_work,
    prepares_batch,
    waits_for_child,
)
from otel_zernel_processors.phases.scopes.cuts import UNKNOWN, Cut
from otel_zernel_processors.phases.scopes.steps import Step

_FEW_OPERATORS = 8
_LATE = 8
"""If a run of few operators is shorter than the gap before it by this factor, it is the loss of a pass whose operators
are not marked, as with torch.compile."""
_SLOWER_PASS = 2
"""A pass takes less time than its backward pass, times this."""
_UPDATES = UPDATES | {AVERAGE}
_FINISHES = _UPDATES | {"zero_grad"}
_SHORT_GAP, _SHORT_TAIL = 20, 4
"""A gap before a forward pass, and the time after its last operator, belong to the pass if they are shorter than this
part of it: its calls in Python, and waits for another thread's lock."""
_CALL_NS, _OPERATOR_NS = 8_000, 4_000
"""A pass without gradients begins so long before its first operator, and ends so long after the begin of its last one.
With PyTorch 2.6 and 2.13, a call of a module takes 5 to 10 us, and few operators take less than 4 us."""
_PASSES = frozenset({"forward", "inference"})
_PAUSES = 8
"""A forward pass goes on while the thread computes something else after a result, but not if a step has more such
pauses than this: then they are steps of an environment."""
_ENVIRONMENTS, _SPREADS = 4, 4
"""So many steps of an environment show how long the next one takes. It is longer if it differs from their median by so
many times as they do."""
_MARKS = _UPDATES | RUNS | {"data_loading", "backward", "zero_grad"}


class ThreadMark(NamedTuple):
    """A scope, a pass, or a part of one: [start, end) in ns. Marks sort by their start, an outer one first."""

    start: int
    minus_end: int
    kind: str
    operators: Operators | None = None

    @property
    def end(self) -> int:
        """When it ends (ns)."""
        return -self.minus_end


class Gaps:
    """The marks of a step, and the gaps between them."""

    def __init__(self, step: Step, clock: ThreadClock, bridge_ns: int) -> None:
        self._step = step
        self._clock = clock
        self._bridge_ns = bridge_ns
        self._loads: dict[int, Moment] = {}
        """By its start (ns): the load of a batch within a pass."""
        self._batches = [
            (interval.start, interval.end) for interval in step.intervals if interval.kind in (BATCH, NOISE)
        ]
        """When (ns) the program draws random numbers for a batch: from the first operator to the begin of the last."""
        self._noise = [interval.start for interval in step.intervals if interval.kind == NOISE]
        """The same, of noise: after a load, the pass begins with it."""
        self._iterators = [start for start, _ in self._batches if self._starts_workers(start)]
        """When (ns) the thread begins to make an iterator of a DataLoader with workers: it draws their base seed."""
        marks = _outside_of_loads(sorted(_marks(step.intervals), key=_order))
        self._extend_to_next(marks)
        self.marks = self._extended_back(marks)
        """In order. Passes are extended to the marks around them."""

    def between(self, since: int) -> list[Cut]:
        """The gaps that end after `since` (ns), in order."""
        gaps: list[Cut] = []
        until, before = self._step.start, "inference" if self._step.follows_inference else ""
        for position, mark in enumerate(self.marks):
            if mark.start > max(until, since):
                gaps += self._gap(max(until, since), position, before)
            if mark.end >= until:
                until, before = mark.end, mark.kind
        return gaps

    def before_pass(self) -> list[Cut]:
        """With a loader: the work on a batch in the training thread, between the load and the pass. If each step makes
        an iterator, the thread also waits there for the end of the workers before."""
        first = self.marks[0] if self.marks else None
        start = self._step.start
        if first is None or first.kind not in _PASSES or not self._clock.knows(start, first.start):
            return []
        if self._step.compiles:
            return []
        until = min([first.start, *self._noise])
        is_short = until - start < max(self._bridge_ns, (first.end - first.start) // _SHORT_GAP)
        work = self._clock.work_between(start, until)
        is_pass = work is None or work.operators or work.launches or self._is_compiled(0, start)
        frees = self._iterators and is_blocked(start, until, self._clock)
        if is_short or is_pass or not (frees or prepares_batch(start, until, self._clock)):
            return []
        return [(start, until, UNKNOWN[Position.LOAD])]

    def _starts_workers(self, since: int) -> bool:
        """Whether the thread starts processes from a time (ns) on, up to its next load."""
        load = min(
            (
                interval.start
                for interval in self._step.intervals
                if interval.kind == "data_loading" and interval.start >= since
            ),
            default=0,
        )
        work = self._clock.work_between(since, load) if load else None
        return work is not None and work.forks > 0

    def _own_time(self, start: int, end: int, around: Sequence[ThreadMark]) -> int:
        """The time (ns) without that in which the thread waits for a CPU. In a scope, the wait belongs to the scope."""
        return end - start if around else own_time(start, end, self._clock)

    def _gap(self, begin: int, position: int, before: str) -> list[Cut]:
        """The moments of a gap before a mark. `before` is the kind of the mark before the gap; it is empty at the start
        of most steps."""
        marks, mark = self.marks, self.marks[position]
        if begin in self._loads:
            return [(begin, mark.start, self._loads[begin])]
        rest = UNKNOWN[Position.BETWEEN if self._step.kind == "between" else Position.AFTER_STEP]
        if made := next((start for start in self._iterators if begin <= start < mark.start), 0):
            before_load: list[Cut] = [(begin, made, rest)] if made > begin else []
            return [*before_load, (made, mark.start, UNKNOWN[Position.LOAD])]
        if self._step.kind == "between" and self._step.boundary == "loader":
            return [(begin, mark.start, rest)]
        if mark.kind == "backward":
            return [(begin, mark.start, UNKNOWN[Position.FORWARD])]
        is_short = own_time(begin, mark.start, self._clock) < self._bridge_ns
        if mark.kind == AVERAGE:
            averages = is_short or (before == AVERAGE and not is_blocked(begin, mark.start, self._clock))
            return [(begin, mark.start, UNKNOWN[Position.AVERAGE if averages else Position.AFTER_STEP])]
        if is_short and mark.kind in _FINISHES and before in _UPDATES:
            return [(begin, mark.start, UNKNOWN[Position.OPTIMIZER])]
        if mark.kind in _FINISHES and (before in ("backward", "forward") or is_short):
            return [(begin, mark.start, UNKNOWN[Position.CLIP])]
        of_run = next((at for at in range(position, len(marks)) if marks[at].kind not in _FINISHES), None)
        run = None if of_run is None else marks[of_run]
        unknown = UNKNOWN[Position.ENVIRONMENT] if run and before == "inference" else rest
        if of_run is None or run is None or (run.operators is None and before != "inference"):
            return [(begin, mark.start, unknown)]
        is_rollout = before == "inference" or run.kind == "inference"
        if is_rollout and waits_for_child(begin, mark.start, self._clock):
            return [(begin, mark.start, UNKNOWN[Position.ENVIRONMENT])]
        is_compiled = run.kind == "forward" and self._is_compiled(of_run, begin)
        has_own_part = not (is_rollout or is_compiled or any(mark.kind in _UPDATES for mark in marks[:position]))
        own_part = self._clock.part_before_backward(begin, mark.start) if has_own_part else None
        load = self._load(begin, mark.start, run, own_part, by_code=not is_rollout) if run.operators else None
        if before != "inference":
            load = self._made(begin, mark.start, load)
        elif load is None:
            load = self._sampled(begin, mark.start, of_run)
        if load:
            before_load = [(begin, load.start, unknown)] if load.start > begin else []
            return [*before_load, (load.start, mark.start, MOMENTS[Position.LOAD][load.activity])]
        return [(begin, mark.start, UNKNOWN[Position.FORWARD] if is_compiled else unknown)]

    def _load(self, begin: int, end: int, run: ThreadMark, own_part: float | None, *, by_code: bool) -> Load | None:
        """The load before a run. Before an evaluation whose later batches come from mapped memory, few page faults are
        enough: its first batch does, too."""
        gap = run.operators.gap if run.operators else NO_EVIDENCE
        load = self._load_between(begin, end, gap, few=False, by_code=by_code, own_part=own_part)
        if load is None and run.kind == "inference" and self._loads:
            return self._load_between(begin, end, gap, few=True)
        return load

    def _load_between(
        self,
        begin: int,
        end: int,
        evidence: Evidence,
        *,
        few: bool,
        by_code: bool = False,
        own_part: float | None = None,
    ) -> Load | None:
        return load_before(
            end,
            begin,
            self._clock,
            evidence,
            self._bridge_ns,
            few=few,
            is_fed=self._step.is_fed,
            by_code=by_code,
            own_part=own_part,
        )

    def _made(self, begin: int, end: int, load: Load | None) -> Load | None:
        """The load, or the making of a batch if that begins before. Nothing blocks the thread from there on, and what
        follows the last operator's begin takes no longer than what precedes it."""
        for start, last in self._batches:
            if not begin <= start < (load.start if load else end) or is_blocked(start, end, self._clock):
                continue
            if own_time(last, end, self._clock) <= max(last - start, self._bridge_ns):
                return Load(start)
        return load

    def _sampled(self, begin: int, end: int, position: int) -> Load | None:
        """The making of a batch from the memory of a rollout, before a run. The gap begins with a step of the
        environment, which takes as long as the others. The rest is the load, if it is longer than these differ. Within
        a run nothing shows when the thread waits for a CPU."""
        marks, trains = self.marks, position
        while marks[trains].kind == "inference" and trains + 1 < len(marks):
            if marks[trains + 1].start - marks[trains].end >= self._bridge_ns:
                return None
            trains += 1
        others = self._step.environments
        if marks[trains].kind != "forward" or len(others) < _ENVIRONMENTS:
            return None
        usual = median_low(others)
        spread = median_low([abs(gap - usual) for gap in others])
        rest = (own_time(begin, end, self._clock) if marks[position].operators else end - begin) - usual
        return Load(end - rest) if rest > max(_SPREADS * spread, usual // _SHORT_GAP) else None

    def _is_compiled(self, position: int, begin: int) -> bool:
        """Whether a run is only the loss of a pass whose operators are not marked: they run in the gap from `begin`.
        The backward pass of such a pass takes time, too. Old recordings do not say which operators are losses."""
        run = self.marks[position]
        operators = run.operators or Operators()
        worked = own_work(begin, run.start, self._clock)
        is_guess = operators.count <= _FEW_OPERATORS and (run.end - run.start) * _LATE < worked
        if not (operators.is_loss if self._clock else is_guess):
            return False
        backward = next((mark for mark in self.marks[position:] if mark.kind == "backward"), None)
        if self._clock and not self._clock.knows(begin, run.start):
            return False
        if backward is None or self._step.compiles or not self._clock:
            return True
        return worked < (backward.end - backward.start) * _SLOWER_PASS

    def _extend_to_next(self, marks: list[ThreadMark]) -> None:
        """Extends passes to the backward pass, or to the next run of the same pass, and finds the loads between."""
        pauses = sum(before.kind == after.kind == "forward" for before, after in pairwise(marks))
        following: ThreadMark | None = None
        for position in range(len(marks) - 1, -1, -1):
            mark = marks[position]
            if mark.kind in _PASSES:
                if following and following.start > mark.end:
                    until = self._end_of_pass(mark, following, pauses)
                    marks[position] = mark._replace(minus_end=-until)
                if mark.kind == "inference":
                    next_start = marks[position + 1].start if position + 1 < len(marks) else self._step.end
                    until = max(min(mark.end + _OPERATOR_NS, next_start), marks[position].end)
                    marks[position] = mark._replace(minus_end=-until)
                following = mark
            elif mark.kind == "backward":
                following = mark
            elif mark.kind != "zero_grad":
                following = None

    def _end_of_pass(self, mark: ThreadMark, following: ThreadMark, pauses: int) -> int:
        """The end of a pass before the mark that follows. With a loader, no batch is loaded there: a thread that is
        blocked in a pass waits for a lock."""
        begin, end, lasted = mark.end, following.start, mark.end - mark.start
        operators = mark.operators or Operators()
        if mark.kind == "forward" and following.kind == "backward":
            evidence = operators.tail
            is_guess = not self._clock.knows(begin, end)
            if own_time(begin, end, self._clock) < max(self._bridge_ns, lasted // _SHORT_TAIL if is_guess else 0):
                return end
        elif not operators.is_open or (mark.kind == following.kind == "forward" and pauses > _PAUSES):
            return begin
        else:
            evidence = following.operators.gap if following.operators else NO_EVIDENCE
        if self._step.boundary == "loader" or self._step.is_lost(begin, end):
            return end if self._step.boundary == "loader" else begin
        if mark.kind == following.kind == "inference" and waits_for_child(begin, end, self._clock):
            return begin
        load = self._load_between(begin, end, evidence, few=True)
        if load:
            self._loads[load.start] = MOMENTS[Position.LOAD][load.activity]
            return load.start
        if mark.kind == following.kind == "inference" and leaves_pass(begin, end, lasted, self._clock):
            return begin
        return end

    def _extended_back(self, marks: Sequence[ThreadMark]) -> list[ThreadMark]:
        """A forward pass begins shortly before its first operator. An update without a scope begins after its backward
        pass."""
        extended: list[ThreadMark] = []
        around: list[ThreadMark] = []
        edge, before = self._step.start, ""
        for mark in marks:
            while around and around[-1].end <= mark.start:
                inner = around.pop()
                if inner.end >= edge:
                    edge, before = inner.end, inner.kind
            if around and around[-1].start > edge:
                edge, before = around[-1].start, around[-1].kind
            close = max(self._bridge_ns, (mark.end - mark.start) // _SHORT_GAP)
            is_made = any(edge <= start < mark.start for start, _ in self._batches)
            follows = mark.kind == "forward" and edge < mark.start and not is_made
            follows = follows and self._own_time(edge, mark.start, around) < close
            if edge < mark.start and (follows or (mark.kind == "update" and before == "backward")):
                mark = mark._replace(start=edge)
            elif mark.kind == "inference":
                mark = mark._replace(start=max(min(edge, mark.start), mark.start - _CALL_NS))
            extended.append(mark)
            around.append(mark)
        return extended


def times_between_passes(intervals: Sequence[ThreadInterval], bridge_ns: int) -> list[int]:
    """The times (ns) of at least `bridge_ns` between passes without gradients that follow each other."""
    if "inference" not in [interval.kind for interval in intervals]:
        return []
    marks = pairwise(sorted(_marks(intervals), key=_order))
    times = [after.start - before.end for before, after in marks if before.kind == after.kind == "inference"]
    return [time for time in times if time >= bridge_ns]


def _order(mark: ThreadMark) -> tuple[int, int]:
    return mark[:2]


def _marks(intervals: Iterable[ThreadInterval]) -> Iterable[ThreadMark]:
    for interval in intervals:
        if interval.kind not in _MARKS:
            continue
        operators = interval.operators
        if operators is None or operators.parts < 2:
            yield ThreadMark(interval.start, -interval.end, interval.kind, operators)
        else:
            yield from _parts(interval, operators)


def _outside_of_loads(marks: Iterable[ThreadMark]) -> list[ThreadMark]:
    """The marks without the passes in a load: they prepare data."""
    kept, loaded = [], 0
    for mark in marks:
        if mark.kind == "data_loading":
            loaded = max(loaded, mark.end)
        if mark.kind not in _PASSES or mark.start >= loaded:
            kept.append(mark)
    return kept


def _parts(run: ThreadInterval, operators: Operators) -> Iterable[ThreadMark]:
    """The regions that a run joins. If only their sum is known, all are taken to be equally long."""
    if operators.edges:
        yield from _known_parts(run, operators)
        return
    lasted, count = run.end - run.start, operators.parts
    part = min(operators.covered_ns, lasted) / count
    stride = (lasted - part) / (count - 1)
    for number in range(count):
        start = run.start + round(number * stride)
        of_part = _of_part(operators, number == 0, number == count - 1)
        yield ThreadMark(start, -(start + round(part)), run.kind, of_part)


def _known_parts(run: ThreadInterval, operators: Operators) -> Iterable[ThreadMark]:
    edges = operators.edges
    last = len(edges) - 2
    for at in range(0, len(edges), 2):
        start = min(run.start + edges[at], run.end)
        end = min(run.start + edges[at + 1], run.end) if at < last else run.end
        yield ThreadMark(start, -end, run.kind, _of_part(operators, at == 0, at == last))


def _of_part(operators: Operators, is_first: bool, is_last: bool) -> Operators | None:
    """The gap of a run lies before its first part, and its pass goes on after the last."""
    if is_first:
        return replace(operators, is_open=False)
    return Operators(is_open=True) if is_last and operators.is_open else None
