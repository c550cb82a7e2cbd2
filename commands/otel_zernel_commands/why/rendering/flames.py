"""The code of each rank as a flame graph: from a rank down to its positions, and from there to its lines.

Its size in a page is bounded: the smallest boxes are left out.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from otel_zernel.text import printable
from otel_zernel_commands.why.findings import JobFindings, RankRow
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes.job import ON_CPU
from otel_zernel_libraries.training.code_paths import (
    Tier,
    line_text,
    of_worker,
    place_of,
    short_file,
    short_function,
    tier_of,
    without_plumbing,
)
from otel_zernel_libraries.training.code_profiles import pprof
from otel_zernel_libraries.training.code_times import PlacedStack
from otel_zernel_libraries.training.ledger import phase_of
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.stacks import CodeLine
from otel_zernel_libraries.training.words import activity_words, position_name

_SMALLEST: Final = 0.0005
"""Smaller parts of all time are not drawn."""
_MOST_ROWS: Final = 24
MOST_BOXES: Final = 4_000
"""Boxes of a job."""


class _Box:
    """A part of the time, and the parts of it."""

    def __init__(self, name: str, phase: int, tier: Tier) -> None:
        self.name, self.phase, self.tier = name, phase, tier
        self.seconds = 0.0
        self.inner: dict[str, _Box] = {}

    def part(self, name: str, phase: int, tier: Tier, seconds: float) -> "_Box":
        """The part with this name, to which it adds the time."""
        if name not in self.inner:
            self.inner[name] = _Box(name, phase, tier)
        self.inner[name].seconds += seconds
        return self.inner[name]


def flames_of(job: JobFindings) -> list[Any] | None:
    """The boxes of a job: name, ms, number of the phase, tier, and the boxes inside. None without known stacks."""
    ranks = [rank for rank in job.ranks if rank.code]
    if not ranks:
        return None
    whole = _Box("all ranks" if len(job.ranks) > 1 else job.title, len(PHASES) - 1, Tier.CORE)
    for rank in ranks:
        _add_rank(whole, rank, is_alone=len(job.ranks) == 1)
    sizes = sorted((box.seconds for box in _all(whole)), reverse=True)
    smallest = max(_SMALLEST * whole.seconds, sizes[MOST_BOXES - 1] if len(sizes) > MOST_BOXES else 0.0)
    return _drawn(whole, smallest)


class CodeRow(NamedTuple):
    """A line of the table beside the drawing: all stacks of a rank with one place and one position."""

    rank: str
    place: str
    line: str
    share: float
    """Of the drawn time of its rank."""


def code_rows(job: JobFindings) -> list[CodeRow]:
    """The places that take most of the time of each rank, the longest first."""
    rows = []
    for rank in job.ranks:
        total = sum(stack.seconds for stack in rank.code.stacks)
        seconds: Counter[tuple[str, str]] = Counter()
        for stack in rank.code.stacks:
            lines = of_worker(stack.lines)[0] if stack.worker else stack.lines
            if place := place_of(lines):
                texts = [line_text(line, rank.code.folder) for line in (place.line, place.call) if line]
                seconds[_where(stack), " -> ".join(texts)] += stack.seconds  # type: ignore[assignment]  # a float
        name = str(rank.pid if rank.rank is None else rank.rank)
        rows += [CodeRow(name, where, line, time / total) for (where, line), time in seconds.items()]
    return sorted(rows, key=lambda row: -row.share)[:_MOST_ROWS]


def folded(jobs: Sequence[JobFindings]) -> str:
    """The stacks as flamegraph.pl and speedscope read them: the job, the rank, the position and the frames, and us."""
    sums: Counter[str] = Counter()
    for job in jobs:
        for rank in job.ranks:
            name = f"pid {rank.pid}" if rank.rank is None else f"rank {rank.rank}"
            for sampled in rank.code.stacks:
                parts = [printable(job.title), name, *(part for part, *_ in _path(sampled, rank.code.folder))]
                sums[";".join(part.replace(";", ":") for part in parts)] += round(sampled.seconds * 1e6)
    return "".join(f"{stack} {us}\n" for stack, us in sorted(sums.items()) if us)


def pprof_file(jobs: Sequence[JobFindings]) -> bytes:
    """The stacks as a file of pprof. The labels of a sample name its job, rank and process."""
    return pprof([(rank.code, _labels(job, rank)) for job in jobs for rank in job.ranks if rank.code])


def _labels(job: JobFindings, rank: RankRow) -> dict[str, str | int]:
    names: dict[str, str | int] = {"service.name": job.title, "process.pid": rank.pid}
    return names if rank.rank is None else {**names, semconv.RANK: rank.rank}


def _where(stack: PlacedStack) -> str:
    return "workers" if stack.worker else "other threads" if stack.is_other else position_name(stack.position)


def _add_rank(whole: _Box, rank: RankRow, *, is_alone: bool) -> None:
    total = len(PHASES) - 1
    for stack in rank.code.stacks:
        whole.seconds += stack.seconds
        box = whole if is_alone else whole.part(f"rank {rank.rank}", total, Tier.CORE, stack.seconds)
        for name, phase, tier in _path(stack, rank.code.folder):
            box = box.part(name, phase, tier, stack.seconds)


def _path(stack: PlacedStack, folder: str) -> Iterator[tuple[str, int, Tier]]:
    """The names of the boxes of a stack, the outermost first."""
    phase = PHASES.index(phase_of(stack.position, stack.activity))
    lines: Sequence[CodeLine] = stack.lines
    if stack.worker:
        lines, _ = of_worker(lines)
    yield _where(stack), phase, Tier.CORE
    for line in reversed(without_plumbing(lines)):
        tier = tier_of(line)
        is_user = tier is Tier.USER
        name = line_text(line, folder) if is_user else f"{short_function(line.function)} ({short_file(line)})"
        yield printable(name), phase, tier
    if stack.activity not in ON_CPU:
        yield activity_words(stack.activity), phase, Tier.CORE


def _all(box: _Box) -> Iterator[_Box]:
    yield box
    for inner in box.inner.values():
        yield from _all(inner)


def _drawn(box: _Box, smallest: float) -> list[Any]:
    inner = sorted((box_ for box_ in box.inner.values() if box_.seconds >= smallest), key=lambda box_: -box_.seconds)
    return [
        box.name,
        round(box.seconds * 1000, 1),
        box.phase,
        int(box.tier),
        [_drawn(box_, smallest) for box_ in inner],
    ]
