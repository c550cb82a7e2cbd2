"""What a run gets of a job's report."""

from collections.abc import Iterator
from dataclasses import dataclass

from otel_zernel_commands.why.findings import JobFindings
from otel_zernel_libraries.training.causes import Cause


@dataclass(frozen=True, slots=True)
class RunSummary:
    """README.md has the same lists."""

    numbers: dict[str, float]
    """Seconds, and shares from 0 to 1."""
    texts: dict[str, str]


def summary_of(job: JobFindings) -> RunSummary:
    """Names of causes and positions with their times, and the first sentence of the report."""
    return RunSummary(
        dict(_numbers(job)), {"zernel/verdict": job.diagnosis.verdict, "zernel/why": job.diagnosis.sentence}
    )


def _numbers(job: JobFindings) -> Iterator[tuple[str, float]]:
    yield "zernel/step_seconds", job.steps.mean
    if job.answer and job.answer.best is not None:
        yield "zernel/best_step_seconds", job.answer.best
    for cause in reversed(job.answer.causes if job.answer else ()):  # of two with one name, the larger one counts
        yield f"zernel/gain_seconds/{_name(cause)}", cause.gain
    for position in job.times:
        for activity in position.activities:
            yield f"zernel/share/{position.position}/{activity.activity}", activity.share


def _name(cause: Cause) -> str:
    """`segment/data/python`, `straggler/rank_3`."""
    rank = f"rank_{cause.rank}" if cause.rank is not None else None
    return "/".join(filter(None, (cause.cause, cause.position, cause.activity, rank)))
