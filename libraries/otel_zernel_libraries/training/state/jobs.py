"""A job of several ranks, from the metrics that `phases` emits for it, and the processes that belong to it.

A process that trains alone is a job of its own: the id of the job is that of the process.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import JobAnswer
from otel_zernel_libraries.training.hangs import SeenHang
from otel_zernel_libraries.training.names import PHASES, launcher_of
from otel_zernel_libraries.training.points import LONGEST_TEXT, SeenValue
from otel_zernel_libraries.training.programs import title_of
from otel_zernel_libraries.training.state.processes import SeenProcess
from otel_zernel_libraries.training.state.readers import chosen, gauge
from otel_zernel_libraries.training.state.tables import Entities

LAUNCHER: Final = semconv.JOB_LAUNCHER
_UNNAMED: Final = semconv.WORLD_SIZE
"""Names a job that has no other name."""
_MOST_EXACT: Final = (LAUNCHER, semconv.JOB_ID, "k8s.job.name")
_LEAST_EXACT: Final = ("service.name", _UNNAMED)
_MOST_RANKS: Final = 1024
_PATIENCE: Final = 3.0
"""Seconds that a rank of several waits for the first data of its job."""
JobKey = tuple[str, str]
"""The attribute that names the job, and its value."""


@dataclass(slots=True)
class SeenJob:
    """The newest comparison of the ranks of a job."""

    key: JobKey
    id: str
    """The value of `key`, unless another job has it."""
    touched: float = 0.0
    ended_at: float | None = None
    name: str = ""
    """For people."""
    ranks: dict[str, int] = field(default_factory=dict)
    """The numbers of its ranks by the id of the process."""
    answer: JobAnswer | None = None
    """Its newest causes over ranks."""
    hang: SeenHang | None = None
    """None while it does not hang."""
    verdict: str = ""
    step_s: float | None = None
    transfer_s: float | None = None
    lateness: dict[int, float] = field(default_factory=dict)
    """By rank: the longest wait (s) of any rank for collectives minus its own, in a mean step."""
    critical: dict[int, dict[str, float]] = field(default_factory=dict)
    """By rank and phase: the time (s) of critical paths."""

    @property
    def launcher(self) -> str:
        """`HOST/PID` of the process that has started its ranks, if that names it; else empty."""
        return self.key[1] if self.key[0] == LAUNCHER else ""

    def ordered_ranks(self) -> list[str]:
        """The ids of its processes, in the order of their ranks."""
        return sorted(self.ranks, key=lambda id_: (self.ranks[id_], id_))


def job_key_of(resource: Mapping[str, AttributeValue]) -> JobKey | None:
    """The attribute that names a job in the resource of its metrics. None if it is no resource of a job.

    `phases` adds `service.name`; it is the name only if there is no other attribute.
    """
    if "process.pid" in resource:
        return None
    keys = [key for key in resource if key != "service.name"]
    named = [key for key in keys if key in (LAUNCHER, semconv.JOB_ID, _UNNAMED)] or keys or ["service.name"]
    key = named[0]
    return (key, str(resource[key])) if key in resource else None


def assign(processes: Entities[SeenProcess], jobs: Entities[SeenJob], now: float) -> bool:
    """Finds the job of each process. Returns whether a process still waits for the first data of its job."""
    by_key = {job.key: job for job in jobs}
    names = {name for name, _ in by_key}
    for job in by_key.values():
        job.ranks = {}
    for process in processes:
        if job_of := _job_of(process, by_key, names):
            job_of.ranks[process.id] = process.rank or 0
        elif process.lateness_s is not None:
            process.lateness_s = None
            processes.changed.add(process.id)
        waits = process.rank is not None and process.job != process.id and now - process.appeared < _PATIENCE
        id_ = job_of.id if job_of else "" if waits else process.id
        if id_ != process.job:
            process.job = id_
            processes.changed.add(process.id)
    for job in by_key.values():
        if job.ranks and (first := processes.get(job.ordered_ranks()[0])):
            job.name = title_of(first.attributes)[:LONGEST_TEXT]
        jobs.changed.add(job.id)
    return any(not process.job for process in processes)


def spread_lateness(processes: Entities[SeenProcess], jobs: Entities[SeenJob]) -> None:
    """Gives the ranks of the jobs that have changed their lateness."""
    for job in filter(None, map(jobs.get, jobs.changed)):
        for id_, number in job.ranks.items():
            process, lateness = processes.get(id_), job.lateness.get(number)
            if process and process.lateness_s != lateness:
                process.lateness_s = lateness
                processes.changed.add(id_)


def _job_of(process: SeenProcess, jobs: Mapping[JobKey, SeenJob], names: Collection[str]) -> SeenJob | None:
    """The job of a launcher precedes those by other names: several launchers may have started jobs of one name."""
    if process.rank is None:
        return None
    for name in sorted(names, key=_exactness):
        value = launcher_of(process.attributes) if name == LAUNCHER else process.attributes.get(name)
        if job := jobs.get((name, str(value))):
            return job
    return None


def _exactness(name: str) -> tuple[int, str]:
    """Sorts the names of jobs as `phases` prefers them: others of `job_by` are between the most and the least exact."""
    if name in _MOST_EXACT:
        return _MOST_EXACT.index(name) - len(_MOST_EXACT), name
    return (_LEAST_EXACT.index(name) + 1 if name in _LEAST_EXACT else 0), name


def _lateness(job: SeenJob, seen: SeenValue) -> None:
    rank = seen.attributes.get(semconv.RANK)
    if not isinstance(rank, int):
        return
    if seen.value is None:
        job.lateness.pop(rank, None)
    elif rank in job.lateness or len(job.lateness) < _MOST_RANKS:
        job.lateness[rank] = seen.value


def _critical(job: SeenJob, seen: SeenValue) -> None:
    rank, phase = seen.attributes.get(semconv.RANK), seen.text(semconv.PHASE)
    if not isinstance(rank, int) or phase not in PHASES:
        return
    if seen.value is None:
        job.critical.pop(rank, None)
    elif rank in job.critical or len(job.critical) < _MOST_RANKS:
        job.critical.setdefault(rank, {})[phase] = seen.value


JOB_READERS: Final[Mapping[str, Callable[[SeenJob, SeenValue], None]]] = {
    semconv.JOB_VERDICT: chosen("verdict", semconv.JOB_VERDICT),
    semconv.JOB_RANK_LATENESS: _lateness,
    semconv.JOB_COLLECTIVE_TRANSFER: gauge("transfer_s"),
    semconv.JOB_STEP_DURATION: gauge("step_s"),
    semconv.STEP_CRITICAL_PATH_TIME: _critical,
}
"""By metric: how its points change a job. A point without a recorded value ends its series."""
