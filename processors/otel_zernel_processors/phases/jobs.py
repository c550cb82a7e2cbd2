"""Jobs of several ranks: their verdicts, where one collector sees more than one of them."""

from collections.abc import Iterable, Iterator, Mapping

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel.otlp.points import key_values
from otel_zernel_processors.phases.config import PhasesConfig
from otel_zernel_processors.phases.emit.metrics import Writer, state_set
from otel_zernel_processors.phases.process import Process
from otel_zernel_processors.phases.results.ranks import VERDICTS, JobFinding, JobJudge

Job = tuple[str, str]
"""A resource attribute that names the job, and its value."""


class Jobs:
    """Puts the processes of each job beside each other."""

    def __init__(self, config: PhasesConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._judges: dict[Job, JobJudge] = {}

    def report(self, processes: Iterable[Process], host: str, now: int) -> Iterator[Batch]:
        """The verdicts on the jobs whose last host this is, as of `now` (ns): all others have had their turn."""
        jobs: dict[Job, dict[int, Process]] = {}
        for process in processes:
            job, rank = self._job_of(process), process.attributes.get("zernel.rank")
            if job and isinstance(rank, int):
                _take(jobs.setdefault(job, {}), rank, process)
        self._judges = {job: judge for job, judge in self._judges.items() if job in jobs}
        for job, ranks in sorted(jobs.items()):
            if len(ranks) > 1 and max(process.identity.host for process in ranks.values()) == host:
                yield self._judged(job, ranks, now)

    def _job_of(self, process: Process) -> Job | None:
        named = process.attributes
        size = named.get("zernel.world_size", 1)
        if not isinstance(size, int) or size < 2:
            return None
        return next(
            ((key, str(named[key])) for key in self._config.job_by if key in named), ("zernel.world_size", str(size))
        )

    def _judged(self, job: Job, ranks: Mapping[int, Process], now: int) -> Batch:
        judge = self._judges.setdefault(job, JobJudge(self._config.verdict))
        if judge.hear({rank: process.tally for rank, process in ranks.items()}):
            self._announce(job, judge.finding)
        finding = judge.finding
        writer = Writer({}, 0, now)
        writer.gauge("zernel.job.verdict", "", state_set("zernel.job.verdict", VERDICTS, finding.verdict))
        writer.gauge(
            "zernel.job.rank.lateness",
            "s",
            [({"zernel.rank": rank}, late) for rank, late in finding.lateness_s.items()],
        )
        writer.gauge("zernel.job.collective.transfer", "s", [({}, finding.transfer_s)])
        writer.gauge("zernel.job.step.duration", "s", [({}, finding.step_s)])
        return Batch(metrics=writer.data(Resource(attributes=key_values(dict([job])))))

    def _announce(self, job: Job, finding: JobFinding) -> None:
        if finding.straggler is not None:
            late = finding.lateness_s[finding.straggler]
            self._context.logger.info(
                "job %s: the others wait for rank %d: it is %.1f ms late in each step of %.1f ms",
                *(job[1], finding.straggler, late * 1e3, finding.step_s * 1e3),
            )
        else:
            self._context.logger.info(
                "job %s is %s: every rank waits at least %.1f ms of a step of %.1f ms for collectives",
                *(job[1], finding.verdict, finding.transfer_s * 1e3, finding.step_s * 1e3),
            )


def _take(ranks: dict[int, Process], rank: int, process: Process) -> None:
    """Of the processes that call themselves one rank, the one that trains is it: DataLoader workers inherit its name,
    and a job that was started anew has it again."""
    known = ranks.get(rank)
    if known is None or process.tally.trained >= known.tally.trained:
        ranks[rank] = process
