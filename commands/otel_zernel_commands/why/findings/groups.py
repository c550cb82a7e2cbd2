"""The jobs among the processes, and their titles."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from otel_zernel.text import visible
from otel_zernel_libraries.job_choice import JobChoice, names_of
from otel_zernel_libraries.training.causes import JobAnswer
from otel_zernel_libraries.training.hangs import SeenHang
from otel_zernel_libraries.training.programs import script_of, title_of
from otel_zernel_libraries.training.state import Entities, SeenJob, SeenProcess
from otel_zernel_libraries.training.verdicts import FEWEST_STEPS

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
    def answer(self) -> JobAnswer | None:
        """Its causes. None if it has none yet. A rank that is seen alone has an answer of its own."""
        of_job = self.job.answer if self.job else None
        return of_job or (self.processes[0].answer if len(self.processes) == 1 or not self.job else None)

    @property
    def hang(self) -> SeenHang | None:
        """None if it does not hang."""
        return self.job.hang if self.job else self.processes[0].hang

    @property
    def trained(self) -> int:
        """The training steps of all ranks."""
        return sum(process.trained for process in self.processes)

    @property
    def lossy(self) -> int:
        """Those in which events were lost."""
        return sum(process.trained_lossy for process in self.processes)

    @property
    def is_lossy(self) -> bool:
        """Whether too few steps are left without those in which events were lost: their phases decide nothing."""
        left = self.trained - self.lossy
        return self.lossy > _LOSSY * self.trained or (self.lossy > 0 and left < FEWEST_STEPS)

    def counted(self) -> "JobGroup":
        """The job without the steps in which events were lost, or with all of them if too few others are left."""
        if not self.lossy or self.is_lossy:
            return self
        return JobGroup([process.without_lossy_steps() for process in self.processes], self.job)

    @property
    def names(self) -> set[str]:
        """All names by which the user may choose it."""
        named = set().union(*(names_of(process.attributes) for process in self.processes))
        return {name for name in (self.title, *named, self.job.launcher if self.job else "") if name}

    def is_chosen(self, choice: JobChoice) -> bool:
        """Whether the user wants to see this job."""
        ancestors = {pid for process in self.processes for pid in process.ancestors}
        return choice.includes({process.pid for process in self.processes}, ancestors, self.names)


@dataclass(slots=True)
class _Ranks:
    job: SeenJob | None
    by_rank: dict[int, SeenProcess] = field(default_factory=dict)


def groups_of(processes: Iterable[SeenProcess], jobs: Entities[SeenJob]) -> list[JobGroup]:
    """The jobs and the single processes that took steps, whose phases are known without, or that hang."""
    hung = {job.id for job in jobs if job.hang}
    known = (process for process in processes if process.source or process.hang or process.job in hung)
    training = sorted(known, key=lambda process: process.pid)
    groups = [JobGroup([process]) for process in training if process.rank is None]
    of_job: dict[object, _Ranks] = {}
    for process in training:
        if process.rank is not None:
            job = jobs.get(process.job)
            ranks = of_job.setdefault(job.id if job else (process.host, process.parent_pid), _Ranks(job))
            before = ranks.by_rank.get(process.rank)
            if before is None or process.trained >= before.trained:  # a restarted rank
                ranks.by_rank[process.rank] = process
    groups += [
        JobGroup([process for _, process in sorted(ranks.by_rank.items())], ranks.job) for ranks in of_job.values()
    ]
    return sorted(
        groups, key=lambda group: (-sum(process.trained for process in group.processes), group.processes[0].pid)
    )


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
