"""Cuts a step where the position of its thread changes, by the precedence of its intervals."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Moment, Position
from otel_zernel_processors.phases.scopes.steps import Step
from otel_zernel_processors.phases.scopes.time_ranges import TimeRange

UNKNOWN = {position: MOMENTS[position][Activity.UNKNOWN] for position in Position}
"""By position: the moment without a known activity."""
_LOST, _BETWEEN, _AFTER_STEP, _EVALUATION, _FORWARD, _CLIP = (
    UNKNOWN[position]
    for position in (
        *(Position.UNKNOWN, Position.BETWEEN, Position.AFTER_STEP),
        *(Position.EVALUATION, Position.FORWARD, Position.CLIP),
    )
)
_COVERS = {
    "collective": Activity.COLLECTIVE,
    "data_loading": Position.LOAD,
    "backward": Position.BACKWARD,
    "optimizer": Position.OPTIMIZER,
    "zero_grad": Position.ZERO_GRAD,
    "average": Position.AVERAGE,
    "enqueue": Activity.COLLECTIVE,
    "sync": Activity.GPU_WAIT,
    "ddp": Position.FORWARD,
    "forward": Position.FORWARD,
    "inference": Position.INFERENCE,
    "evaluation": Position.EVALUATION,
}
"""What intervals show, in the order of precedence. A position that is no call is a scope. Scopes may enclose each
other: then the one that began last counts. A call with an activity has the position of the time around it."""
_NAMES = list(_COVERS)
PRECEDENCE = {name: at for at, name in enumerate(_COVERS) if name not in ("collective", "enqueue")}
PRECEDENCE["update"] = PRECEDENCE["optimizer"]
COLLECTIVE, ENQUEUE, SYNC = (_NAMES.index(name) for name in ("collective", "enqueue", "sync"))
_CALLS = range(ENQUEUE, _NAMES.index("forward"))
IS_SCOPE = tuple(at != COLLECTIVE and at not in _CALLS for at in range(len(_NAMES)))
_SHOWN = [UNKNOWN[shown] if isinstance(shown, Position) else None for shown in _COVERS.values()]
"""By precedence: the moment that an interval shows; None if its position is that of the time around it."""
_ACTIVITY = [shown if isinstance(shown, Activity) else Activity.UNKNOWN for shown in _COVERS.values()]
_PLACES = sum(1 << at for at, moment in enumerate(_SHOWN) if moment)
"""A bit mask of the intervals that show a position."""
_NO_WORK = frozenset({Position.AFTER_STEP, Position.BETWEEN, Position.UNKNOWN})

Cut = tuple[int, int, Moment]
"""[start, end) in ns, and the moment that intervals show."""
Cover = tuple[int, int, int]
"""[start, end) in ns, and the precedence of what an interval shows."""
Edge = tuple[int, int, int]
"""A time (ns), whether an interval begins (1), ends (-1) or neither (0) there, and its precedence."""


def cuts_of(step: Step, covered: Sequence[Cover], bounds: TimeRange, gaps: Sequence[Cut]) -> list[Cut]:
    """Cuts the step where its position changes. `covered` is sorted. `gaps` are uncovered times with a known moment."""
    if step.works_until is None:
        in_a_row = _cuts_in_a_row(step, covered, Uncovered(step, bounds, gaps), has_gaps=bool(gaps))
        if in_a_row is not None:
            return in_a_row
    uncovered = Uncovered(step, bounds, gaps)
    edges = _edges(step, covered, [*bounds, *(at for start, end, _ in gaps for at in (start, end))])
    if _are_nested(covered):
        return list(_swept_in_layers(step, edges, covered, uncovered.at))
    return list(_swept(step, edges, uncovered.at))


def _cuts_in_a_row(step: Step, covered: Iterable[Cover], uncovered: "Uncovered", *, has_gaps: bool) -> list[Cut] | None:
    """The cuts of a step whose intervals follow each other, as in most steps; None if they overlap."""
    cuts: list[Cut] = []
    at = step.start
    for start, end, precedence in covered:
        if not at <= start < end <= step.end:
            return None
        if at < start:
            if has_gaps:
                uncovered.cut(at, start, cuts)
            else:
                cuts.append((at, start, uncovered.of_step(at)))
        cuts.append((start, end, _SHOWN[precedence] or _of_call(precedence, uncovered.at(start).position, step)))
        at = end
    if at < step.end:
        uncovered.cut(at, step.end, cuts)
    return cuts


def _of_call(precedence: int, around: Position, step: Step) -> Moment:
    """The moment of a call. A wait for the device is a part of the work, even after it."""
    if precedence == SYNC and around in _NO_WORK:
        around = Position.CLIP if step.trains else Position.INFERENCE
    return MOMENTS[around][_ACTIVITY[precedence]]


def _moment(step: Step, mask: int, uncovered_at: Callable[[int], Moment], at: int) -> Moment:
    """The moment of a time with these intervals, a bit mask of their precedences."""
    if not mask:
        return uncovered_at(at)
    precedence = (mask & -mask).bit_length() - 1
    if shown := _SHOWN[precedence]:
        return shown
    places = mask & _PLACES
    around = _SHOWN[(places & -places).bit_length() - 1] if places else uncovered_at(at)
    return _of_call(precedence, around.position if around else Position.UNKNOWN, step)


def _edges(step: Step, covered: Iterable[Cover], bounds: Iterable[int]) -> list[Edge]:
    begin, finish = step.start, step.end
    edges = [(at, 0, 0) for at in bounds if begin < at < finish]
    for start, end, precedence in covered:
        if start < finish and begin < end and start < end:
            edges.append((max(start, begin), 1, precedence))
            edges.append((min(end, finish), -1, precedence))
    edges.sort()
    edges.append((finish, 0, 0))
    return edges


def _are_nested(covered: Iterable[Cover]) -> bool:
    """Whether a scope encloses another. `covered` is sorted."""
    until = 0
    for start, end, at in covered:
        if IS_SCOPE[at] and start < end:
            if start < until:
                return True
            until = end
    return False


def _swept(step: Step, edges: Iterable[Edge], uncovered_at: Callable[[int], Moment]) -> Iterator[Cut]:
    """The cuts of a step without nested scopes: between two edges, the interval with the highest precedence."""
    active, mask, at = [0] * len(_NAMES), 0, step.start
    for edge, change, precedence in edges:
        if edge > at:
            yield at, edge, _moment(step, mask, uncovered_at, at)
            at = edge
        active[precedence] += change
        mask = mask | 1 << precedence if active[precedence] else mask & ~(1 << precedence)


def _swept_in_layers(
    step: Step, edges: Iterable[Edge], covered: Iterable[Cover], uncovered_at: Callable[[int], Moment]
) -> Iterator[Cut]:
    """The same for any step: of the scopes, only the one that began last counts."""
    scopes = sorted((start, -end, at) for start, end, at in covered if IS_SCOPE[at])
    active, mask, at, begun = [0] * len(_NAMES), 0, step.start, 0
    around: list[tuple[int, int]] = []
    for edge, change, precedence in edges:
        if edge > at:
            while begun < len(scopes) and scopes[begun][0] <= at:
                around.append((-scopes[begun][1], scopes[begun][2]))
                begun += 1
            while around and around[-1][0] <= at:
                around.pop()
            inner = 1 << around[-1][1] if around else 0
            yield at, edge, _moment(step, mask | inner, uncovered_at, at)
            at = edge
        if not IS_SCOPE[precedence]:
            active[precedence] += change
            mask = mask | 1 << precedence if active[precedence] else mask & ~(1 << precedence)


class Uncovered:
    """The moment of time without an interval, asked in the order of time."""

    def __init__(self, step: Step, bounds: TimeRange, gaps: Sequence[Cut]) -> None:
        """`gaps` are in order. Their moments replace those of the step."""
        self._step = step
        self._bounds = bounds
        self._gaps = gaps
        self._next = 0

    def cut(self, start: int, end: int, cuts: list[Cut]) -> None:
        """Appends the cuts of uncovered time."""
        for gap_start, gap_end, _ in self._gaps[self._next :]:
            if gap_start >= end:
                break
            for until in (gap_start, gap_end):
                if start < until < end:
                    cuts.append((start, until, self.at(start)))
                    start = until
        cuts.append((start, end, self.at(start)))

    def at(self, at: int) -> Moment:
        """The moment of the uncovered time that begins at `at` (ns)."""
        gaps = self._gaps
        while self._next < len(gaps) and gaps[self._next][1] <= at:
            self._next += 1
        if self._next < len(gaps) and gaps[self._next][0] <= at:
            return gaps[self._next][2]
        return self.of_step(at)

    def of_step(self, at: int) -> Moment:
        """The moment by the step alone."""
        step, (backward, work_end) = self._step, self._bounds
        if step.kind == "unfinished":
            return _LOST
        if step.kind == "between":
            return _BETWEEN
        if at >= work_end or step.boundary != "loader":
            return _AFTER_STEP
        if step.kind == "evaluation":
            return _EVALUATION
        return _FORWARD if at < backward else _CLIP
