"""The time of a step before, between and after its scopes, by its runs of operators.

A run shows when its first and its last operator began. The forward pass goes on up to its backward pass. The time
before a run, and after its last operator, is a wait for data only with evidence for it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from otel_zernel_libraries.training.interval_spans import Snapshots
from otel_zernel_processors.phases.intake.intervals import RUNS, UPDATES, Evidence, Operators, ThreadInterval
from otel_zernel_processors.phases.scopes.evidence import evidence_between
from otel_zernel_processors.phases.scopes.steps import Step

_BLOCKED = 10
"""If a thread was off the CPU by its own will for one part in so many of a gap, it waited for data in that time."""
_WHOLLY_BLOCKED = 0.8
"""Share of a gap: the rest then belongs to the wait, too. Else it is other code, which comes before it."""
_READ = 4096
"""Bytes that a thread reads in a gap if it loads data; less than that is, for example, a read of /proc."""
_FILE_FAULTS, _FILE_FAULT_NS = 2, 2_000_000
"""Page faults on files in a gap if a thread loads data from mapped memory, and the time for each."""
_FAULTS, _FAULT_NS = 8, 250_000
"""The same if only the number of all page faults is known: new memory causes faults, too."""
_FEW_OPERATORS = 8
_LATE = 8
"""If a run of few operators is shorter than the gap before it by this factor, it is the loss of a pass whose operators
are not marked, as with torch.compile."""
_FINISHES = UPDATES | {"zero_grad"}
_SHORT_GAP, _SHORT_TAIL = 20, 4
"""A gap before a forward pass, and the time after its last operator, belong to the pass if they are shorter than this
part of it: its calls in Python, and waits for another thread's lock."""
_PASSES = frozenset({"forward", "inference"})
_PAUSES = 8
"""A forward pass goes on while the thread computes something else after a result, but not if a step has more such
pauses than this: then they are steps of an environment."""
_MARKS = UPDATES | RUNS | {"data_loading", "backward", "zero_grad"}

Gap = tuple[int, int, str]
"""[start, end) in ns, and the activity of the thread in it."""


class ThreadMark(NamedTuple):
    """A scope, a pass, or a part of one: [start, end) in ns. Marks sort by their start, an outer one first."""

    start: int
    minus_end: int
    kind: str
    operators: Operators | None = None
    snapshots: Snapshots | None = None

    @property
    def end(self) -> int:
        """When it ends (ns)."""
        return -self.minus_end


def marks_of(step: Step, bridge_ns: int) -> list[ThreadMark]:
    """The marks of a step, in order. Passes are extended to the marks around them."""
    marks = _outside_of_loads(sorted(_marks(step.intervals), key=_order))
    waits = _extend_to_next(marks, bridge_ns, has_loader=step.boundary == "loader")
    marks = _extended_back(marks, step.start, bridge_ns)
    return sorted([*marks, *waits], key=_order) if waits else marks


def _order(mark: ThreadMark) -> tuple[int, int]:
    return mark[:2]


def gaps_of(step: Step, marks: Sequence[ThreadMark], since: int, bridge_ns: int) -> list[Gap]:
    """The gaps between marks that end after `since` (ns), in order."""
    gaps: list[Gap] = []
    until, before = step.start, ""
    for position, mark in enumerate(marks):
        if mark.start > max(until, since):
            begin = max(until, since)
            activity, lasted = _activity(marks, position, before, mark.start - begin, bridge_ns)
            if lasted < mark.start - begin:
                gaps.append((begin, mark.start - lasted, "host"))
            gaps.append((mark.start - lasted, mark.start, activity))
        if mark.end >= until:
            until, before = mark.end, mark.kind
    return gaps


def _marks(intervals: Iterable[ThreadInterval]) -> Iterable[ThreadMark]:
    for one in intervals:
        if one.kind not in _MARKS:
            continue
        operators = one.operators
        if operators is None or operators.parts < 2:
            yield ThreadMark(one.start, -one.end, one.kind, operators, one.snapshots)
        else:
            yield from _parts(one, operators)


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
        yield ThreadMark(start, -(start + round(part)), run.kind, of_part, run.snapshots)


def _known_parts(run: ThreadInterval, operators: Operators) -> Iterable[ThreadMark]:
    edges = operators.edges
    last = len(edges) - 2
    for at in range(0, len(edges), 2):
        start = min(run.start + edges[at], run.end)
        end = min(run.start + edges[at + 1], run.end) if at < last else run.end
        yield ThreadMark(start, -end, run.kind, _of_part(operators, at == 0, at == last), run.snapshots)


def _of_part(operators: Operators, is_first: bool, is_last: bool) -> Operators | None:
    """The gap of a run lies before its first part, and its pass goes on after the last."""
    if is_first:
        return replace(operators, is_open=False)
    return Operators(is_open=True) if is_last and operators.is_open else None


def _extend_to_next(marks: list[ThreadMark], bridge_ns: int, *, has_loader: bool) -> list[ThreadMark]:
    """Extends passes to the backward pass, or to the next run of the same pass. Returns the waits between them. With a
    loader there are none: a thread that is blocked in a pass waits for a lock."""
    pauses = sum(one.kind == other.kind == "forward" for one, other in pairwise(marks))
    waits: list[ThreadMark] = []
    following: ThreadMark | None = None
    for position in range(len(marks) - 1, -1, -1):
        mark = marks[position]
        if mark.kind in _PASSES:
            if following and following.start > mark.end:
                until, wait = _end_of_pass(mark, following, pauses, bridge_ns)
                if has_loader and wait:
                    until, wait = following.start, ""
                marks[position] = mark._replace(minus_end=-until)
                if wait:
                    waits.append(ThreadMark(until, -following.start, wait))
            following = mark
        elif mark.kind == "backward":
            following = mark
        elif mark.kind != "zero_grad":
            following = None
    return waits


def _end_of_pass(mark: ThreadMark, following: ThreadMark, pauses: int, bridge_ns: int) -> tuple[int, str]:
    """The end of a pass before the mark that follows, and the wait from there to that mark; empty for none."""
    lasted, operators = following.start - mark.end, mark.operators or Operators()
    if mark.kind == "forward" and following.kind == "backward":
        evidence = operators.tail
        if mark.snapshots and following.snapshots:
            evidence = evidence_between(mark.snapshots[1], following.snapshots[0])
        if lasted < max(bridge_ns, (mark.end - mark.start) // _SHORT_TAIL):
            return following.start, ""
    elif not operators.is_open or (mark.kind == following.kind == "forward" and pauses > _PAUSES):
        return mark.end, ""
    else:
        evidence = following.operators.gap if following.operators else Evidence()
    wait = _wait_in_pass(evidence, lasted)
    return (following.start - _length_of(wait, evidence, lasted) if wait else following.start), wait


def _extended_back(marks: Sequence[ThreadMark], begin: int, bridge_ns: int) -> list[ThreadMark]:
    """A forward pass begins shortly before its first operator. An update without a scope begins after its backward
    pass."""
    extended: list[ThreadMark] = []
    around: list[ThreadMark] = []
    edge, before = begin, ""
    for mark in marks:
        while around and around[-1].end <= mark.start:
            inner = around.pop()
            if inner.end >= edge:
                edge, before = inner.end, inner.kind
        if around and around[-1].start > edge:
            edge, before = around[-1].start, around[-1].kind
        follows = mark.kind == "forward" and mark.start - edge < max(bridge_ns, (mark.end - mark.start) // _SHORT_GAP)
        if edge < mark.start and (follows or (mark.kind == "update" and before == "backward")):
            mark = mark._replace(start=edge)
        extended.append(mark)
        around.append(mark)
    return extended


def _activity(marks: Sequence[ThreadMark], position: int, before: str, lasted: int, bridge_ns: int) -> tuple[str, int]:
    """The activity at the end of a gap of `lasted` ns, and how long it lasts (ns). `before` is the kind of the mark
    before the gap; it is empty at the start of the step."""
    kind = marks[position].kind
    if kind == "backward":
        return "forward", lasted
    if kind in _FINISHES and (before in ("backward", "forward") or lasted < bridge_ns):
        return "compute", lasted
    run = next((marks[at] for at in range(position, len(marks)) if marks[at].kind not in _FINISHES), None)
    if run is None or run.operators is None:
        return "host", lasted
    gap = run.operators.gap
    if wait := _wait(gap, lasted) or _wait_as_in_pauses(marks, run, gap):
        return wait, _length_of(wait, gap, lasted)
    is_few = run.operators.count <= _FEW_OPERATORS and (run.end - run.start) * _LATE < lasted
    return ("forward" if run.kind == "forward" and is_few else "host"), lasted


def _wait(evidence: Evidence, lasted: int) -> str:
    """The wait for data that a period of `lasted` ns shows; empty for none."""
    if evidence.read >= _READ:
        return "io"
    if evidence.blocked_ns * _BLOCKED >= lasted:
        return "queue_wait"
    if evidence.copies:
        return "copy"
    return "io" if _maps_files(evidence, lasted) else ""


def _maps_files(evidence: Evidence, lasted: int = 0) -> bool:
    """Whether page faults show a load from mapped memory in a period of `lasted` ns. Without it, few are enough."""
    on_files = evidence.file_faults >= max(_FILE_FAULTS, lasted / _FILE_FAULT_NS)
    return on_files or evidence.faults >= max(_FAULTS, lasted / _FAULT_NS)


def _wait_as_in_pauses(marks: Iterable[ThreadMark], run: ThreadMark, evidence: Evidence) -> str:
    """The wait before an evaluation whose later batches come from mapped memory: its first batch does, too."""
    has_waits = run.kind == "inference" and any(mark.kind == "io" for mark in marks)
    return "io" if has_waits and _maps_files(evidence) else ""


def _wait_in_pass(evidence: Evidence, lasted: int) -> str:
    """The same for a pause within a pass: here, other code rarely runs."""
    return _wait(evidence, lasted) or ("io" if _maps_files(evidence) else "")


def _length_of(wait: str, evidence: Evidence, lasted: int) -> int:
    """How long the wait lasts (ns). It is the end of the period."""
    if wait == "queue_wait" and evidence.blocked_ns < lasted * _WHOLLY_BLOCKED:
        return evidence.blocked_ns
    return lasted
