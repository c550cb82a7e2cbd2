"""The ledger of a step: every nanosecond belongs to exactly one phase.

Where marks overlap, the first of these that applies wins:

1. `collective`: the thread waits for other ranks (a wait of c10d, or a CUDA sync while a collective is in flight)
2. `data_loading`: it waits for a batch
3. `backward`
4. `optimizer`, `zero_grad`
5. `sync`, `ddp`: it waits for the GPU, or runs DDP's forward; `enqueue`: it calls for a collective
6. nothing: `forward` before the first backward pass, `compute` from there to the last work of the step (gradient
   clipping, loss scaling), `unknown` after it (logging, checkpoints), between loops, and where events were lost; in an
   evaluation `forward`, `unknown` once a loop that was left early must have been left

The user's own regions (`record_function`) may enclose anything, so they decide nothing.

An uncovered gap shorter than `bridge` between two pieces of one phase is Python's own way from one to the next, and
belongs to that phase.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from otel_zernel_processors.phases.intake.intervals import Mark
from otel_zernel_processors.phases.scopes.steps import Step

PHASES = ("data_loading", "gpu_compute", "nccl_collective", "optimizer_step", "unknown")

PHASE_OF = {
    "collective": "nccl_collective",
    "data_loading": "data_loading",
    "backward": "gpu_compute",
    "optimizer": "optimizer_step",
    "zero_grad": "optimizer_step",
    "enqueue": "nccl_collective",
    "sync": "gpu_compute",
    "ddp": "gpu_compute",
    "forward": "gpu_compute",
    "compute": "gpu_compute",
    "unknown": "unknown",
}
_WHAT = ("collective", "data_loading", "backward", "optimizer", "zero_grad", "enqueue", "sync", "ddp")
_RANK = {what: rank for rank, what in enumerate(_WHAT) if what not in ("collective", "enqueue")}
_COLLECTIVE, _ENQUEUE, _SYNC = (_WHAT.index(what) for what in ("collective", "enqueue", "sync"))
_FIRST = ["", *(_WHAT[(mask & -mask).bit_length() - 1] for mask in range(1, 1 << len(_WHAT)))]
"""What wins among those whose bits are set; nothing for none."""
_UNCOVERED = frozenset({"forward", "compute", "unknown"})
_PIECE = 1024
"""Cuts of a step after which others get a turn."""
_NO_WORK = frozenset({"data_loading", "collective", "user"})

Span = tuple[int, int]
"""[start, end) in ns."""
Cut = tuple[int, int, str]
"""The same, and what the thread did."""
Cover = tuple[int, int, int]
"""The same, and the rank of what the thread did."""
Edge = tuple[int, int, int]
"""A time (ns), whether something begins (1), ends (-1) or neither (0) there, and its rank."""


class Piece(NamedTuple):
    """A stretch of a step in which its thread did one thing: [start, end) in ns."""

    start: int
    end: int
    what: str

    @property
    def phase(self) -> str:
        return PHASE_OF[self.what]


_piece: Callable[[Cut], Piece] = partial(tuple.__new__, Piece)
"""Makes one in half the time that its class takes."""


class Ledger(NamedTuple):
    """A step's pieces, which follow each other from its start to its end, and the time of hidden collectives."""

    pieces: list[Piece]
    overlap_ns: int
    """How long collectives were in flight while the thread did something else."""

    def phase_ns(self) -> dict[str, int]:
        """How long each phase lasted, of those there were."""
        spent: dict[str, int] = {}
        for start, end, what in self.pieces:
            phase = PHASE_OF[what]
            spent[phase] = spent.get(phase, 0) + end - start
        return spent


def ledger(step: Step, collectives: Sequence[Span], bridge_ns: int) -> Ledger:
    """The ledger of a step, `collectives` being when collectives of the process were in flight."""
    return next(made for made in ledger_in_turns(step, collectives, bridge_ns) if made is not None)


def ledger_in_turns(step: Step, collectives: Sequence[Span], bridge_ns: int) -> Iterator[Ledger | None]:
    """The ledger of a step, at last; before that None, several times, so that others get a turn while a long one is
    made."""
    flights = union([(max(start, step.start), min(end, step.end)) for start, end in collectives])
    covered = [(mark.start, mark.end, rank) for mark in step.marks if (rank := _rank(mark)) is not None]
    if flights:
        waits = union((start, end) for start, end, rank in covered if rank == _SYNC)
        covered += [(start, end, _COLLECTIVE) for start, end in intersection(waits, flights)]
    yield None
    bounds = _work(step)
    covered.sort()
    yield None
    cuts = _in_a_row(step, covered, bounds) if step.works_until is None else None
    if cuts is None:
        cuts, edges = [], _edges(step, covered, bounds)
        for cut in _swept(step, edges, bounds):
            cuts.append(cut)
            if len(cuts) % _PIECE == 1:
                yield None
    pieces = []
    for piece in _joined(cuts, bridge_ns):
        pieces.append(piece)
        if len(pieces) % _PIECE == 0:
            yield None
    exposed = [(start, end) for start, end, what in pieces if what == "collective"] if flights else []
    yield Ledger(pieces, length(flights) - length(intersection(flights, exposed)))


def _rank(mark: Mark) -> int | None:
    """Its place in the order of precedence; None for what decides nothing."""
    kind = mark.kind
    if kind == "collective":
        return None if mark.in_flight else _ENQUEUE
    if kind in ("sync", "ddp") and mark.waits_for_collective:
        return _COLLECTIVE
    return _RANK.get(kind)


def _in_a_row(step: Step, covered: Iterable[Cover], bounds: Span) -> list[Cut] | None:
    """The cuts of a step whose marks follow each other, as most do; None if they overlap."""
    cuts: list[Cut] = []
    at = step.start
    for start, end, rank in covered:
        if not at <= start < end <= step.end:
            return None
        if at < start:
            cuts.append((at, start, _uncovered(step, at, bounds)))
        cuts.append((start, end, _WHAT[rank]))
        at = end
    if at < step.end:
        cuts.append((at, step.end, _uncovered(step, at, bounds)))
    return cuts


def _edges(step: Step, covered: Iterable[Cover], bounds: Span) -> list[Edge]:
    begin, finish = step.start, step.end
    edges = [(at, 0, 0) for at in bounds if begin < at < finish]
    for start, end, rank in covered:
        if start < finish and begin < end and start < end:
            edges.append((max(start, begin), 1, rank))
            edges.append((min(end, finish), -1, rank))
    edges.sort()
    edges.append((finish, 0, 0))
    return edges


def _swept(step: Step, edges: Iterable[Edge], bounds: Span) -> Iterator[Cut]:
    """The cuts of any step: what wins between two edges among all that goes on there."""
    active, mask, at = [0] * len(_WHAT), 0, step.start
    for edge, change, rank in edges:
        if edge > at:
            yield at, edge, _FIRST[mask] or _uncovered(step, at, bounds)
            at = edge
        active[rank] += change
        mask = mask | 1 << rank if active[rank] else mask & ~(1 << rank)


def _work(step: Step) -> Span:
    """When the first backward pass begins, and when the last work of the step ends."""
    if step.kind == "evaluation":
        return step.end, step.end if step.works_until is None else step.works_until
    backward, work_end = step.end, step.start
    for mark in step.marks:
        if mark.kind not in _NO_WORK:
            work_end = max(work_end, mark.end)
            if mark.kind == "backward":
                backward = min(backward, mark.start)
    return backward, work_end


def _uncovered(step: Step, at: int, bounds: Span) -> str:
    backward, work_end = bounds
    if step.lossy or step.kind in ("between", "unfinished"):
        return "unknown"
    if at >= work_end:
        return "unknown"
    return "forward" if at < backward else "compute"


def _joined(cuts: Sequence[Cut], bridge_ns: int) -> Iterator[Piece]:
    """The cuts as pieces: short gaps bridged, and neighbours of one kind joined."""
    begin, last, doing = 0, len(cuts) - 1, ""
    for position, (start, end, what) in enumerate(cuts):
        if end - start < bridge_ns and what in _UNCOVERED and 0 < position < last:
            before, after = cuts[position - 1][2], cuts[position + 1][2]
            if PHASE_OF[before] == PHASE_OF[after]:
                what = before
        if what != doing:
            if doing:
                yield _piece((begin, start, doing))
            begin, doing = start, what
    if doing:
        yield _piece((begin, cuts[-1][1], doing))


def after(pieces: Sequence[Piece], time: int) -> Sequence[Piece]:
    """What of the pieces, which follow each other, lies after a time (ns)."""
    if not pieces or pieces[0].start >= time:
        return pieces
    return [piece._replace(start=max(piece.start, time)) for piece in pieces if piece.end > time]


def union(spans: Iterable[Span]) -> list[Span]:
    """The time that any of the spans covers, in order and without overlap."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def intersection(left: Sequence[Span], right: Sequence[Span]) -> list[Span]:
    """The time that both cover; each in order and without overlap."""
    both, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            both.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return both


def length(spans: Iterable[Span]) -> int:
    """How long spans without overlap are together, in ns."""
    return sum(end - start for start, end in spans)
