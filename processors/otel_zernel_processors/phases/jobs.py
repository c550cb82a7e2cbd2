"""Jobs of several ranks: the verdicts on jobs with more than one rank at this collector."""

from collections.abc import Iterable, Iterator, Mapping

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel.otlp.points import key_values
from otel_zernel_processors.phases.config import PhasesConfig
from otel_zernel_processors.phases.emit.job_report import job_metrics
from otel_zernel_processors.phases.emit.metrics import metrics_data
from otel_zernel_processors.phases.process import TrainingProcess
from otel_zernel_processors.phases.results.ranks import JobVerdict, JobVerdictTracker

Job = tuple[str, str]
"""The resource attribute that names the job, and its value."""


class Jobs:
    """Groups processes by job and compares the ranks of each job."""

    def __init__(self, config: PhasesConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._trackers: dict[Job, JobVerdictTracker] = {}

    def report(self, processes: Iterable[TrainingProcess], host: str, now: int) -> Iterator[Batch]:
        """The verdicts at `now` (ns) on the jobs whose last host this is: their other hosts have already reported."""
        jobs: dict[Job, dict[int, TrainingProcess]] = {}
        for process in processes:
            job, rank = self._job_of(process), process.attributes.get("zernel.rank")
            if job and isinstance(rank, int):
                _add(jobs.setdefault(job, {}), rank, process)
        self._trackers = {job: tracker for job, tracker in self._trackers.items() if job in jobs}
        for job, ranks in sorted(jobs.items()):
            if len(ranks) > 1 and max(process.identity.host for process in ranks.values()) == host:
                yield self._report_job(job, ranks, now)

    def _job_of(self, process: TrainingProcess) -> Job | None:
        named = process.attributes
        size = named.get("zernel.world_size", 1)
        if not isinstance(size, int) or size < 2:
            return None
        return next(
            ((key, str(named[key])) for key in self._config.job_by if key in named), ("zernel.world_size", str(size))
        )

    def _report_job(self, job: Job, ranks: Mapping[int, TrainingProcess], now: int) -> Batch:
        tracker = self._trackers.setdefault(job, JobVerdictTracker(self._config.verdict))
        if tracker.update({rank: process.window for rank, process in ranks.items()}):
            self._log(job, tracker.verdict)
        resource = Resource(attributes=key_values(dict([job])))
        return Batch(metrics=metrics_data(resource, job_metrics(tracker.verdict, now)))

    def _log(self, job: Job, verdict: JobVerdict) -> None:
        if verdict.straggler is not None:
            late = verdict.lateness_s[verdict.straggler]
            self._context.logger.info(
                "job %s: rank %d delays the other ranks: it is %.1f ms late in each step of %.1f ms",
                *(job[1], verdict.straggler, late * 1e3, verdict.step_s * 1e3),
            )
        else:
            self._context.logger.info(
                "job %s is %s: every rank waits at least %.1f ms of a step of %.1f ms for collectives",
                *(job[1], verdict.name, verdict.transfer_s * 1e3, verdict.step_s * 1e3),
            )


def _add(ranks: dict[int, TrainingProcess], rank: int, process: TrainingProcess) -> None:
    """Adds a process. If several have one rank, the one that trains most counts: DataLoader workers inherit the rank of
    their trainer, and a restarted job has the same ranks."""
    other = ranks.get(rank)
    if other is None or process.window.trained >= other.window.trained:
        ranks[rank] = process
