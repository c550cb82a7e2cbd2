"""The ledger of a step: every nanosecond belongs to exactly one phase.

Where marks overlap, the first of these that applies wins:

1. `collective`: the thread waits for other ranks (a wait of c10d, or a CUDA sync while a collective is in flight)
2. `data_loading`: it waits for a batch
3. `backward`
4. `optimizer`, `zero_grad`
5. `sync`, `ddp`: it waits for the GPU, or runs DDP's forward; `enqueue`: it calls for a collective
6. nothing: `forward` before the first backward pass, `compute` from there to the last work of the step (gradient
   clipping, loss scaling), `unknown` after it (logging, checkpoints), between loops, and where events were lost

The user's own regions (`record_function`) may enclose anything, so they decide nothing.

An uncovered gap shorter than `bridge` between two pieces of one phase is Python's own way from one to the next, and
belongs to that phase.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from otel_zernel_processors.phases.marks import Mark
from otel_zernel_processors.phases.steps import Step

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
_RANK = {what: rank for rank, what in enumerate(_WHAT)}

Span = tuple[int, int]
"""[start, end) in ns."""


class Piece(NamedTuple):
    """A stretch of a step in which its thread did one thing: [start, end) in ns."""

    start: int
    end: int
    what: str

    @property
    def phase(self) -> str:
        return PHASE_OF[self.what]


class Ledger(NamedTuple):
    """A step's pieces, which follow each other from its start to its end, and the time of hidden collectives."""

    pieces: list[Piece]
    overlap_ns: int
    """How long collectives were in flight while the thread did something else."""


def ledger(step: Step, collectives: Sequence[Span], bridge_ns: int) -> Ledger:
    """The ledger of a step, `collectives` being when collectives of the process were in flight."""
    flights = union((max(start, step.start), min(end, step.end)) for start, end in collectives)
    covered = [(mark.start, mark.end, what) for mark in step.marks for what in _covers(mark)]
    waits = [(mark.start, mark.end) for mark in step.marks if mark.kind == "sync" and not mark.waits_for_collective]
    covered += [(start, end, "collective") for start, end in intersection(union(waits), flights)]
    pieces = merged(_bridged(list(_partition(step, covered)), bridge_ns))
    exposed = [(piece.start, piece.end) for piece in pieces if piece.what == "collective"]
    return Ledger(pieces, length(flights) - length(intersection(flights, exposed)))


def _covers(mark: Mark) -> Iterator[str]:
    if mark.waits_for_collective:
        yield "collective"
    elif mark.kind == "collective":
        if not mark.in_flight:
            yield "enqueue"
    elif mark.kind in _RANK:
        yield mark.kind


def _partition(step: Step, covered: Iterable[tuple[int, int, str]]) -> Iterator[Piece]:
    """The step cut wherever a mark begins or ends."""
    edges = []
    for start, end, what in covered:
        start, end = max(start, step.start), min(end, step.end)
        if start < end:
            edges += [(start, 1, _RANK[what]), (end, -1, _RANK[what])]
    backward, work_end = _work(step)
    edges += [(at, 0, 0) for at in (backward, work_end) if step.start < at < step.end]
    active, at = [0] * len(_RANK), step.start
    for edge, change, rank in sorted(edges):
        if edge > at:
            yield Piece(at, edge, _winner(active) or _uncovered(step, at, backward, work_end))
            at = edge
        active[rank] += change
    if at < step.end:
        yield Piece(at, step.end, _winner(active) or _uncovered(step, at, backward, work_end))


def _winner(active: list[int]) -> str | None:
    return next((what for what, count in zip(_WHAT, active, strict=True) if count), None)


def _work(step: Step) -> Span:
    """When the first backward pass begins, and when the last work of the step ends."""
    working = [mark for mark in step.marks if mark.kind not in ("data_loading", "collective", "user")]
    backward = min((mark.start for mark in working if mark.kind == "backward"), default=step.end)
    return backward, max((mark.end for mark in working), default=step.start)


def _uncovered(step: Step, at: int, backward: int, work_end: int) -> str:
    if step.lossy or step.kind in ("between", "unfinished"):
        return "unknown"
    if step.kind == "evaluation":
        return "forward"
    if at >= work_end:
        return "unknown"
    return "forward" if at < backward else "compute"


def _bridged(pieces: list[Piece], bridge_ns: int) -> Iterator[Piece]:
    for position, piece in enumerate(pieces):
        if 0 < position < len(pieces) - 1 and piece.what in ("forward", "compute", "unknown"):
            before, after = pieces[position - 1], pieces[position + 1]
            if before.phase == after.phase and piece.end - piece.start < bridge_ns:
                piece = piece._replace(what=before.what)
        yield piece


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces with neighbours of one kind joined."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and joined[-1].what == piece.what:
            joined[-1] = joined[-1]._replace(end=piece.end)
        else:
            joined.append(piece)
    return joined


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
