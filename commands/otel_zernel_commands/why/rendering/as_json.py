"""The report for programs. Durations are in s, shares from 0 to 1. docs/why.schema.json is the schema of this file."""

from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from otel_zernel_commands.why import findings
from otel_zernel_commands.why.watch import StepBlock
from otel_zernel_libraries.training.causes import Cause, Hidden
from otel_zernel_libraries.training.hangs import JobHang


class _Object(BaseModel):
    """An object of the report. A reader ignores keys that it does not know: a later release may add some."""

    model_config = ConfigDict(frozen=True, from_attributes=True, use_attribute_docstrings=True)


class PositionActivity(_Object):
    """The time of training threads with an activity in a position: the mean of their ranks."""

    position: str
    """`zernel.position`."""
    activity: str
    """`zernel.activity`."""
    phase: str
    """`zernel.phase` of the thread's own time in the position."""
    per_step: float
    """Seconds for each training step."""
    share: float
    """Of all time of the threads."""


class Rank(_Object):
    """A process of the job."""

    rank: int | None
    """Null for a process that trains alone."""
    pid: int
    steps: int
    """Training steps."""
    p50: float
    p99: float
    shares: dict[str, float]
    """By `zernel.phase`."""
    lateness: float | None
    """Seconds in a mean step that the others wait for it; null if the ranks were not compared."""
    blocks: tuple[StepBlock, ...]
    """Its steps in blocks of time: `why --compare` takes the noise of a step from them."""


class Job(_Object):
    """A job of several ranks, a process that trains alone, or a program without steps."""

    title: str
    host: str
    world_size: int
    """Its ranks, also on other hosts."""
    ranks_seen: int
    seconds: float
    """From the first to the last step."""
    verdict: str
    """The one that alerts match: that of the first cause, or why there is none."""
    why: str
    """What to change and what it saves."""
    causes: tuple[Cause, ...]
    """The largest gain first. A gain is in seconds a step."""
    hidden: tuple[Hidden, ...]
    """Time whose removal would save nothing."""
    best: float | None
    """Seconds that a step would at best take; null if no causes are known."""
    device: findings.DeviceTime | None
    """What its GPUs did, in seconds a step. Null without a GPU."""
    hung: JobHang | None = None
    """Null if it does not hang."""
    stopped: JobHang | None = None
    """Null unless somebody has stopped all its ranks, for example with Ctrl-Z. Such a job does not hang."""
    time: tuple[PositionActivity, ...]
    phases: tuple[findings.TimeShare, ...]
    """In place of `time`, for a program without PyTorch's scopes."""
    cost: float | None = None
    """The share of the job's time that the watch took: an estimate; null if it is not known."""
    start: findings.JobStart | None
    """Null if the job began before the watch."""
    step: findings.StepSummary
    ranks: tuple[Rank, ...]
    gpus: tuple[findings.GpuRow, ...]
    threads: tuple[findings.ThreadRow, ...]
    """Those of a program without steps."""
    advice: Annotated[tuple[str, ...], Field(validation_alias=AliasChoices("try", "advice"), serialization_alias="try")]
    evidence: dict[str, str]
    """Of a program or a job without causes."""
    not_seen: tuple[str, ...]


class Report(_Object):
    """The result of `otel-zernel why --json`."""

    schema_version: Literal[1] = 1
    started: str
    """The start of the watch: ISO 8601, UTC."""
    seconds: float
    """The length of the watch."""
    interrupted: bool
    """Whether a signal ended it early."""
    processes: int
    """Processes of the machine."""
    jobs: tuple[Job, ...]
    gpus: tuple[findings.GpuRow, ...]
    """Those of no job."""
    not_seen: tuple[str, ...]


def report_json(report: findings.WhyReport) -> str:
    """One JSON object, indented, without time lines. Ends with a line break."""
    return report_tree(report).model_dump_json(indent=2, by_alias=True) + "\n"


def report_tree(report: findings.WhyReport) -> Report:
    """The report, as it is in JSON."""
    return Report(
        started=report.started,
        seconds=report.seconds,
        interrupted=report.is_interrupted,
        processes=report.processes,
        jobs=tuple(map(_job, report.jobs)),
        gpus=report.gpus,
        not_seen=report.notes,
    )


def _job(job: findings.JobFindings) -> Job:
    answer = job.answer
    return Job(
        title=job.title,
        host=job.host,
        world_size=job.world_size,
        ranks_seen=len(job.ranks),
        seconds=job.seconds,
        verdict=job.diagnosis.verdict,
        why=job.diagnosis.sentence,
        causes=answer.causes if answer else (),
        hidden=answer.hidden if answer else (),
        best=answer.best if answer else None,
        device=job.device,
        hung=job.hang if job.hang and not job.hang.is_stop else None,
        stopped=job.hang if job.hang and job.hang.is_stop else None,
        time=tuple(
            PositionActivity(
                position=row.position,
                activity=activity.activity,
                phase=row.phase,
                per_step=activity.per_step,
                share=activity.share,
            )
            for row in job.times
            for activity in row.activities
        ),
        phases=() if job.times else job.shares,
        cost=job.cost,
        start=job.start,
        step=job.steps,
        ranks=tuple(map(Rank.model_validate, job.ranks)),
        gpus=job.gpus,
        threads=job.threads,
        advice=job.diagnosis.advice,
        evidence=dict(job.diagnosis.evidence),
        not_seen=job.notes,
    )
