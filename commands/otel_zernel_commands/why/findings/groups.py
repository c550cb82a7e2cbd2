"""The jobs among the processes, and their titles."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from otel_zernel.text import visible
from otel_zernel_commands.why.seen import SeenJob, SeenProcess
from otel_zernel_libraries.training import FEWEST_STEPS, script_of, title_of

_NAMES = ("zernel.job.launcher", "zernel.job.id", "k8s.job.name", "service.name", "zernel.world_size")
"""The attributes that name a job in `phases`, the most exact first."""
_LONGEST_TITLE = 80
_LOSSY = 0.25
"""With events lost in more than this share of the steps, their phases decide nothing."""


@dataclass(slots=True)
class JobGroup:
    """The processes of one job, or one process that trains alone."""

    processes: list[SeenProcess]
    """By rank, then by pid."""
    job: SeenJob | None = None
    """The same job in the reports of `phases`."""

    @property
    def title(self) -> str:
        """The program's script, or the name that the user gave the job."""
        first = self.processes[0]
        return _shown(title_of(first.attributes, script_of(first.command)))

    @property
    def trained(self) -> int:
        """The training steps of all ranks."""
        return sum(one.trained for one in self.processes)

    @property
    def lossy(self) -> int:
        """Those in which events were lost."""
        return sum(one.trained_lossy for one in self.processes)

    @property
    def is_lossy(self) -> bool:
        """Whether too few steps are left without those in which events were lost: their phases decide nothing."""
        left = self.trained - self.lossy
        return self.lossy > _LOSSY * self.trained or (self.lossy > 0 and left < FEWEST_STEPS)

    def counted(self) -> "JobGroup":
        """The job without the steps in which events were lost, or with all of them if too few others are left."""
        if not self.lossy or self.is_lossy:
            return self
        return JobGroup([one.without_lossy_steps() for one in self.processes], self.job)

    @property
    def names(self) -> set[str]:
        """All names by which the user may choose it."""
        keys = ("service.name", "zernel.job.id", "k8s.job.name", "process.executable.name")
        named = {str(one.attributes[key]) for one in self.processes for key in keys if key in one.attributes}
        launcher = {str(self.job.attributes.get("zernel.job.launcher", ""))} if self.job else set()
        return {name for name in (self.title, *named, *launcher) if name}

    def belongs_to(self, pid: int) -> bool:
        """Whether the pid is one of its processes, launched one of them, or is the child of one."""
        return any(pid == one.pid or pid in one.ancestors for one in self.processes)


@dataclass(slots=True)
class _Ranks:
    job: SeenJob | None
    by_rank: dict[int, SeenProcess] = field(default_factory=dict)


def groups_of(processes: Iterable[SeenProcess], jobs: Sequence[SeenJob]) -> list[JobGroup]:
    """The jobs and the single processes that took steps, or whose phases are known without."""
    training = [one for one in processes if one.source]
    groups = [JobGroup([one]) for one in training if one.rank is None]
    of_job: dict[object, _Ranks] = {}
    for one in training:
        if one.rank is not None:
            job = next(_jobs_of(one, jobs), None)
            ranks = of_job.setdefault(id(job) if job else (one.host, one.parent_pid), _Ranks(job))
            before = ranks.by_rank.get(one.rank)
            if before is None or one.trained >= before.trained:  # a restarted rank
                ranks.by_rank[one.rank] = one
    groups += [JobGroup([one for _, one in sorted(ranks.by_rank.items())], ranks.job) for ranks in of_job.values()]
    return sorted(groups, key=lambda group: (-sum(one.trained for one in group.processes), group.processes[0].pid))


def _jobs_of(process: SeenProcess, jobs: Sequence[SeenJob]) -> Iterator[SeenJob]:
    """The jobs that the process may be a rank of, the most exact name first."""
    named = {**process.attributes, "zernel.job.launcher": f"{process.host}/{process.parent_pid}"}
    for key in _NAMES:
        for job in jobs:
            value = job.attributes.get(key)
            if value is not None and str(value) == str(named.get(key)) and _is_the_name(key, job):
                yield job


def _is_the_name(key: str, job: SeenJob) -> bool:
    """Whether this attribute names the job: `service.name` is on every job, with or without another name."""
    return key != "service.name" or not any(other in job.attributes for other in _NAMES if other != key)


def same_names(titles: Iterable[str]) -> set[str]:
    """The titles that occur more than once."""
    counts: defaultdict[str, int] = defaultdict(int)
    for title in titles:
        counts[title] += 1
    return {title for title, count in counts.items() if count > 1}


def _shown(text: str) -> str:
    """Without characters that control a terminal: names of jobs are untrusted."""
    shown = visible(text)
    return shown if len(shown) <= _LONGEST_TITLE else f"{shown[: _LONGEST_TITLE - 1]}…"
