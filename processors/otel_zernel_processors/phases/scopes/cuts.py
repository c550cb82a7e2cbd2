"""Cuts a step where the activity of its thread changes, by the precedence of activities."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from otel_zernel_processors.phases.scopes.gaps import Gap
from otel_zernel_processors.phases.scopes.steps import Step
from otel_zernel_processors.phases.scopes.time_ranges import TimeRange

ACTIVITIES = (
    "collective",
    *("data_loading", "backward", "optimizer", "zero_grad", "queue_wait", "io", "copy"),
    *("enqueue", "sync", "ddp"),
    *("forward", "inference"),
)
"""The activities that intervals show, in the order of precedence. Those of the second and of the last line are scopes,
which may enclose each other: then the one that began last counts."""
PRECEDENCE = {name: at for at, name in enumerate(ACTIVITIES) if name not in ("collective", "enqueue")}
PRECEDENCE["update"] = PRECEDENCE["optimizer"]
COLLECTIVE, ENQUEUE, SYNC = (ACTIVITIES.index(name) for name in ("collective", "enqueue", "sync"))
_CALLS = range(ENQUEUE, ACTIVITIES.index("forward"))
IS_SCOPE = tuple(at != COLLECTIVE and at not in _CALLS for at in range(len(ACTIVITIES)))
_WINNER = ["", *(ACTIVITIES[(mask & -mask).bit_length() - 1] for mask in range(1, 1 << len(ACTIVITIES)))]
"""By a bit mask of activities that overlap: the one that wins; empty for no activity."""

Cut = tuple[int, int, str]
"""[start, end) in ns, and the activity of the thread."""
Cover = tuple[int, int, int]
"""[start, end) in ns, and the precedence of the activity."""
Edge = tuple[int, int, int]
"""A time (ns), whether an interval begins (1), ends (-1) or neither (0) there, and its precedence."""


def cuts_of(step: Step, covered: Sequence[Cover], bounds: TimeRange, gaps: Sequence[Gap]) -> list[Cut]:
    """Cuts the step where its activity changes. `covered` is sorted."""
    if step.works_until is None:
        in_a_row = _cuts_in_a_row(step, covered, Uncovered(step, bounds, gaps), gaps)
        if in_a_row is not None:
            return in_a_row
    uncovered = Uncovered(step, bounds, gaps)
    activity_at = uncovered.at if gaps else uncovered.of_step
    edges = _edges(step, covered, [*bounds, *(at for start, end, _ in gaps for at in (start, end))])
    if _are_nested(covered):
        return list(_swept_in_layers(step, edges, covered, activity_at))
    return list(_swept(step, edges, activity_at))


def _cuts_in_a_row(
    step: Step, covered: Iterable[Cover], uncovered: "Uncovered", gaps: Sequence[Gap]
) -> list[Cut] | None:
    """The cuts of a step whose intervals follow each other, as in most steps; None if they overlap."""
    cuts: list[Cut] = []
    at = step.start
    for start, end, precedence in covered:
        if not at <= start < end <= step.end:
            return None
        if at < start:
            if gaps:
                uncovered.cut(at, start, cuts)
            else:
                cuts.append((at, start, uncovered.of_step(at)))
        cuts.append((start, end, ACTIVITIES[precedence]))
        at = end
    if at < step.end:
        uncovered.cut(at, step.end, cuts)
    return cuts


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


def _swept(step: Step, edges: Iterable[Edge], uncovered_at: Callable[[int], str]) -> Iterator[Cut]:
    """The cuts of a step without nested scopes: between two edges, the activity with the highest precedence."""
    active, mask, at = [0] * len(ACTIVITIES), 0, step.start
    for edge, change, precedence in edges:
        if edge > at:
            yield at, edge, _WINNER[mask] or uncovered_at(at)
            at = edge
        active[precedence] += change
        mask = mask | 1 << precedence if active[precedence] else mask & ~(1 << precedence)


def _swept_in_layers(
    step: Step, edges: Iterable[Edge], covered: Iterable[Cover], uncovered_at: Callable[[int], str]
) -> Iterator[Cut]:
    """The same for any step: of the scopes, only the one that began last counts."""
    scopes = sorted((start, -end, at) for start, end, at in covered if IS_SCOPE[at])
    active, mask, at, begun = [0] * len(ACTIVITIES), 0, step.start, 0
    around: list[tuple[int, int]] = []
    for edge, change, precedence in edges:
        if edge > at:
            while begun < len(scopes) and scopes[begun][0] <= at:
                around.append((-scopes[begun][1], scopes[begun][2]))
                begun += 1
            while around and around[-1][0] <= at:
                around.pop()
            inner = 1 << around[-1][1] if around else 0
            yield at, edge, _WINNER[mask | inner] or uncovered_at(at)
            at = edge
        if not IS_SCOPE[precedence]:
            active[precedence] += change
            mask = mask | 1 << precedence if active[precedence] else mask & ~(1 << precedence)


class Uncovered:
    """The activity of time without an interval, asked in the order of time."""

    def __init__(self, step: Step, bounds: TimeRange, gaps: Sequence[Gap]) -> None:
        """`gaps` are in order. Their activities replace those of the step."""
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

    def at(self, at: int) -> str:
        """The activity of the uncovered time that begins at `at` (ns)."""
        gaps = self._gaps
        while self._next < len(gaps) and gaps[self._next][1] <= at:
            self._next += 1
        if self._next < len(gaps) and gaps[self._next][0] <= at:
            return gaps[self._next][2]
        return self.of_step(at)

    def of_step(self, at: int) -> str:
        """The activity by the step alone."""
        step, (backward, work_end) = self._step, self._bounds
        if step.lossy:
            return "lost"
        if at >= work_end or step.boundary != "loader" or step.kind in ("between", "unfinished"):
            return "unknown"
        return "forward" if at < backward else "compute"
