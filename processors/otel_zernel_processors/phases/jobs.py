"""Jobs: the processes that train together, and the verdicts on those with more than one rank at this collector."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel.otlp.points import Attributes, key_values
from otel_zernel_libraries.training import semconv
from otel_zernel_processors.phases.config import PhasesConfig
from otel_zernel_processors.phases.emit.services import is_named
from otel_zernel_processors.phases.followed_job import FollowedJob
from otel_zernel_processors.phases.intake.host_clock import HostClock
from otel_zernel_processors.phases.job_log import JobLog
from otel_zernel_processors.phases.process import TrainingProcess
from otel_zernel_processors.phases.rank_reports import HostReport, Ranks, rank_report, replaces

_Former = Sequence[tuple[int, TrainingProcess]]
"""Processes that others of their job have replaced, and their ranks."""


class Job(NamedTuple):
    """The identity of a job."""

    key: str
    """The resource attribute that names it."""
    value: str


class Jobs:
    """Groups processes by job, compares the ranks of each job, joins their steps, and logs verdicts."""

    def __init__(self, config: PhasesConfig, context: Context) -> None:
        self._config = config
        self._followed: dict[Job, FollowedJob] = {}
        self._log = JobLog(context.logger)
        self._whole: set[str] = set()
        """The launchers that have named a job. They still do when one of its ranks has ended, as in a hang."""

    def add(
        self, processes: Iterable[TrainingProcess], name: str, clock: HostClock, now: int, *, is_whole: bool
    ) -> Iterator[Batch]:
        """Adds the report at `now` (ns) of the host with this `name` and `clock`. `processes` are those in the last
        reports of all hosts. Yields the traces of the host's processes that are no rank of a job, and what is left of
        jobs that have ended. `is_whole`: whether the host's data reaches `now`."""
        processes = list(processes)
        jobs, former = self._jobs_of(processes)
        yield from self._end(job for job in list(self._followed) if job not in jobs)
        single = _single(processes, jobs, former)
        self._log.update({job.value: ranks for job, ranks in jobs.items()}, single)
        self._log.log_silence(len(processes))
        here = [process for process in single if process.identity.host == name]
        self._log.log_processes(here)
        for process in here:
            yield from process.steps.own_traces(process.resource)
        self._log.log_hung_processes(here, now)
        for job, ranks in sorted(jobs.items()):
            followed = self._followed.setdefault(job, FollowedJob(job, self._config, self._log))
            size = _world_size(next(iter(ranks.values())))
            followed.describe(size, Resource(attributes=key_values(_resource(job, ranks))))
            reports = {
                rank: rank_report(rank, process) for rank, process in ranks.items() if process.identity.host == name
            }
            before = [rank_report(rank, process) for rank, process in former[job] if process.identity.host == name]
            followed.add(HostReport(clock, now, is_whole, reports, before))

    def advance(self) -> Iterator[Batch]:
        """The verdicts and traces of the jobs that wait for no rank any more."""
        for _, followed in sorted(self._followed.items()):
            yield from followed.advance()

    def end(self) -> Iterator[Batch]:
        """The last verdicts, and the traces of the steps that still wait for a rank."""
        yield from self._end(list(self._followed))

    def _jobs_of(self, processes: Iterable[TrainingProcess]) -> tuple[dict[Job, Ranks], dict[Job, _Former]]:
        """The ranks of each job, and the processes that they have replaced.

        A job is what `job_by` names. Without a name it is the ranks that one launcher has started, if these are all
        ranks of the job; else all ranks that have the same world size. If several launchers have started all ranks of
        one name, each has a job of its own.
        """
        groups: defaultdict[Job, list[TrainingProcess]] = defaultdict(list)
        for process in processes:
            if process.rank is not None:
                groups[self._name_of(process)].append(process)
        jobs: dict[Job, Ranks] = {}
        former: dict[Job, _Former] = {}
        for name, group in groups.items():
            current, replaced = _current(group)
            for job, ranks in _split(name, current, self._whole):
                jobs[job] = ranks
                former[job] = [key for key in replaced if (now := ranks.get(key[0])) and replaces(now, key[1])]
        self._whole = {job.value for job in jobs if job.key == _LAUNCHER}
        return jobs, former

    def _name_of(self, process: TrainingProcess) -> Job:
        named = process.attributes
        given = (Job(key, str(named[key])) for key in self._config.job_by if _names(key, named.get(key)))
        return next(given, Job(_UNNAMED, str(_world_size(process))))

    def _end(self, jobs: Iterable[Job]) -> Iterator[Batch]:
        for job in jobs:
            yield from self._followed.pop(job).end()


_UNNAMED = semconv.WORLD_SIZE
"""Names a job that has no other name."""
_LAUNCHER = semconv.JOB_LAUNCHER
"""Names a job by the host and the pid of its launcher."""


def _names(key: str, value: object) -> bool:
    return value is not None and (key != "service.name" or is_named(value))


def _world_size(process: TrainingProcess) -> int:
    size = process.attributes.get(semconv.WORLD_SIZE, 1)
    return size if isinstance(size, int) else 1


def _split(name: Job, group: Sequence[TrainingProcess], whole: Collection[str]) -> Iterator[tuple[Job, Ranks]]:
    """The jobs in a group of processes that have the same name, or none. `whole`: the launchers that named a job in
    the last report."""
    launched = {} if _is_one_job(name, group) else _launched(group)
    size = _world_size(group[0])
    complete = {job: ranks for job, ranks in launched.items() if len(ranks) == size or job in whole}
    if len(complete) < (1 if name.key == _UNNAMED else 2):
        complete = {}
    for job, ranks in complete.items():
        yield Job(_LAUNCHER, job), ranks
    rest = [process for process in group if _launcher_of(process) not in complete]
    if rest:
        yield name, _by_rank(rest)


def _is_one_job(name: Job, group: Sequence[TrainingProcess]) -> bool:
    """Whether a name and different ranks leave no doubt."""
    return name.key != _UNNAMED and len(_by_rank(group)) == len(group)


def _launched(group: Iterable[TrainingProcess]) -> dict[str, Ranks]:
    """The ranks that each launcher has started."""
    of_launcher: defaultdict[str, list[TrainingProcess]] = defaultdict(list)
    for process in group:
        if launcher := _launcher_of(process):
            of_launcher[launcher].append(process)
    return {launcher: _by_rank(processes) for launcher, processes in of_launcher.items()}


def _launcher_of(process: TrainingProcess) -> str:
    """`HOST/PID` of the parent; empty if it is not known."""
    parent = process.attributes.get("process.parent_pid")
    return f"{process.identity.host}/{parent}" if parent else ""


def _current(group: Iterable[TrainingProcess]) -> tuple[list[TrainingProcess], _Former]:
    """The processes that no other one with the same rank has replaced, and the others."""
    ranks = [(int(process.attributes[semconv.RANK]), process) for process in group]
    latest = dict(sorted(ranks, key=lambda rank: rank[1].first_seen))
    current = [process for rank, process in ranks if not replaces(latest[rank], process)]
    return current, [(rank, process) for rank, process in ranks if replaces(latest[rank], process)]


def _by_rank(processes: Iterable[TrainingProcess]) -> dict[int, TrainingProcess]:
    """Of several processes with one rank at the same time, the one that trains most counts."""
    ranks: dict[int, TrainingProcess] = {}
    for process in processes:
        rank = int(process.attributes[semconv.RANK])
        if rank not in ranks or process.window.trained >= ranks[rank].window.trained:
            ranks[rank] = process
    return ranks


def _single(
    processes: Iterable[TrainingProcess],
    jobs: Mapping[Job, Ranks],
    former: Mapping[Job, _Former],
) -> list[TrainingProcess]:
    """The processes that are no rank of a job."""
    ranks = {id(process) for of_job in jobs.values() for process in of_job.values()}
    ranks |= {id(process) for of_job in former.values() for _, process in of_job}
    return [process for process in processes if id(process) not in ranks]


def _resource(job: Job, ranks: Ranks) -> Attributes:
    """The name of the job and, if its ranks agree on it, its `service.name`."""
    services = {str(process.attributes["service.name"]) for process in ranks.values()}
    return {"service.name": services.pop() if len(services) == 1 else job.value, job.key: job.value}
