"""The data of the time lines, as JSON in a page. Its size is bounded: neighbours are merged if there are many."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from otel_zernel_commands.why.findings import JobFindings, RankRow
from otel_zernel_commands.why.rendering.flames import flames_of
from otel_zernel_libraries.output_files import inline_json
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.state import merged
from otel_zernel_libraries.training.steps import StepBar
from otel_zernel_libraries.training.words import detail_name, phase_name

MOST_BARS = 16_000
"""Bars of all ranks of all jobs: about 1 MB."""
MOST_SEGMENTS = 40_000
"""Parts of steps. If there are more, steps have none, and are drawn as a stack of their phases."""
_KINDS = ("training", "accumulation", "evaluation", "inference", "between", "unfinished")
_US = 1_000  # nanoseconds to the microsecond


def drawing_json(jobs: Sequence[JobFindings]) -> str:
    """JSON that is safe inside an HTML script element: the phases with their names, and an object for each job, with
    times in us since the first."""
    all_ranks = [rank for job in jobs for rank in job.ranks]
    each = -(-sum(len(rank.bars) for rank in all_ranks) // MOST_BARS) or 1
    drawn = {id(rank): merged(rank.bars, each) for rank in all_ranks}
    segments = sum(len(bar.segments) for bars in drawn.values() for bar in bars)
    trees = [_job(job, drawn, with_segments=segments <= MOST_SEGMENTS) for job in jobs]
    tree = {"phases": PHASES, "names": [*map(phase_name, PHASES)], "jobs": trees}
    return inline_json(json.dumps(tree, separators=(",", ":")))


def _job(job: JobFindings, drawn: dict[int, list[StepBar]], *, with_segments: bool) -> dict[str, Any]:
    start = min((bar.start_ns for rank in job.ranks for bar in rank.bars), default=0)
    details = _details(job.ranks)
    position = {detail: number for number, detail in enumerate(details)}
    return {
        "kinds": _KINDS,
        "details": list(map(detail_name, details)),
        "ranks": [
            {
                "name": f"rank {rank.rank}" if rank.rank is not None else str(rank.pid),
                "bars": [_bar(bar, start, position if with_segments else None) for bar in drawn[id(rank)]],
            }
            for rank in job.ranks
        ],
        "flames": flames_of(job),
    }


def _details(ranks: Iterable[RankRow]) -> list[str]:
    return sorted({segment.detail for rank in ranks for bar in rank.bars for segment in bar.segments})


def _bar(bar: StepBar, start: int, position: dict[str, int] | None) -> list[Any]:
    """Start, duration, steps, longest, kind, number, time by phase; segments: phase, start, duration, detail; of merged
    steps the durations with their counts."""
    segments = bar.segments if position is not None else ()
    return [
        (bar.start_ns - start) // _US,
        bar.duration_ns // _US,
        bar.steps,
        bar.longest_ns // _US,
        _KINDS.index(bar.kind) if bar.kind in _KINDS else len(_KINDS) - 1,
        bar.number,
        [spent // _US for spent in bar.phase_ns],
        [
            [
                PHASES.index(segment.phase) if segment.phase in PHASES else len(PHASES) - 1,
                (segment.start_ns - bar.start_ns) // _US,
                (segment.end_ns - segment.start_ns) // _US,
                (position or {}).get(segment.detail, 0),
            ]
            for segment in segments
        ],
        [[duration // _US, count] for duration, count in bar.durations],
    ]
