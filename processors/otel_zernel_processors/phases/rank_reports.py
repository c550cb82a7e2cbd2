"""What the ranks of a job add to its reports, and the runs of the job that they belong to."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from otel_zernel_libraries.training import semconv
from otel_zernel_processors.phases.alignment.job_steps import JobSteps
from otel_zernel_processors.phases.alignment.rank_step import RankStep
from otel_zernel_processors.phases.emit.traces import TraceCandidate
from otel_zernel_processors.phases.intake.host_clock import HostClock
from otel_zernel_processors.phases.process import TrainingProcess
from otel_zernel_processors.phases.results.totals import PhaseTotals

Ranks = Mapping[int, TrainingProcess]
"""The processes of a job, by rank."""


class RankReport(NamedTuple):
    """One rank at the time of a report. The process goes on while the job waits for other hosts."""

    rank: int
    process: TrainingProcess
    window: PhaseTotals
    steps: Sequence[RankStep]
    """Its steps since the report before."""
    candidates: Sequence[TraceCandidate]
    """Those that may become traces."""


class HostReport(NamedTuple):
    """The ranks of a job on one host at the time of a report."""

    clock: HostClock
    """The clock of the host, which identifies it: its name may become known later."""
    now: int
    """The time (ns) of the report."""
    is_whole: bool
    """Whether the host's data reaches this time. Else the host is silent."""
    ranks: Mapping[int, RankReport]
    former: Sequence[RankReport]
    """The last steps of processes that another process with their rank has replaced."""

    @property
    def processes(self) -> Iterator[TrainingProcess]:
        """Those of the ranks."""
        return (report.process for report in self.ranks.values())


def rank_report(rank: int, process: TrainingProcess) -> RankReport:
    """Takes the process's steps since the last call."""
    return RankReport(rank, process, process.window, *process.steps.pop())


def replaces(process: TrainingProcess, other: TrainingProcess) -> bool:
    """Whether a process of the same rank began after the other one had ended: the job was restarted.

    If no data reports the end, the process must have made a step: others with the same rank may only serve it.
    """
    if process is other or not (other.ended or process.phases.totals.steps):
        return False
    return process.first_seen >= (other.ended or other.last_seen)


class Run:
    """One run of a job: the processes that train together, by rank, and their steps."""

    def __init__(self, job: str) -> None:
        self.members: dict[int, TrainingProcess] = {}
        self.steps = JobSteps(job)

    def is_replaced_by(self, report: RankReport) -> bool:
        """Whether the process has replaced a member. Then it belongs to the next run."""
        member = self.members.get(report.rank)
        return member is not None and replaces(report.process, member)

    def is_after(self, report: RankReport) -> bool:
        """Whether the process was over before this run began. Then it belongs to a run before."""
        return any(replaces(member, report.process) for member in self.members.values())

    def identity(self, size: int) -> str:
        """The text that distinguishes this run from others of the job; empty if nothing known does.

        Every collector knows the launcher's name of the run. Without it, one of all ranks uses the first one's process.
        """
        named = (process.attributes.get(semconv.JOB_RUN) for process in self.members.values())
        if run := next((run for run in named if run), None):
            return str(run)
        return self.members[min(self.members)].identity.seed if len(self.members) >= size else ""


def by_process(reports: Iterable[RankReport]) -> Iterator[RankReport]:
    """The reports with the steps of each process in one, the earliest process first."""
    joined: dict[int, RankReport] = {}
    for report in reports:
        if before := joined.get(id(report.process)):
            steps, candidates = [*before.steps, *report.steps], [*before.candidates, *report.candidates]
            report = report._replace(steps=steps, candidates=candidates)
        joined[id(report.process)] = report
    yield from sorted(joined.values(), key=lambda report: report.process.first_seen)
