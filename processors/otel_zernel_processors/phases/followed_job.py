"""One job: the verdict on its ranks, its critical path and its traces."""

from collections import Counter
from collections.abc import Iterator, Mapping

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel.component import PAUSE
from otel_zernel_processors.phases.alignment.job_steps import JobStep, JobSteps, RankOrigin
from otel_zernel_processors.phases.config import PhasesConfig
from otel_zernel_processors.phases.emit.job_report import job_metrics
from otel_zernel_processors.phases.emit.metrics import metrics_data
from otel_zernel_processors.phases.job_traces import JobTraces
from otel_zernel_processors.phases.process import TrainingProcess
from otel_zernel_processors.phases.results.ranks import JobVerdict, JobVerdictTracker

Ranks = Mapping[int, TrainingProcess]

_CHUNK = 64
"""Steps whose critical paths are found at a time: about 1 ms with 8 ranks."""


class FollowedJob:
    """Follows the ranks of one job that are known to this collector."""

    def __init__(self, name: str, config: PhasesConfig) -> None:
        """`name` identifies the job in the ids of its traces."""
        self._tracker = JobVerdictTracker(config.verdict)
        self._steps = JobSteps(name)
        self._traces = JobTraces(config.traces) if config.traces else None
        self._critical: Counter[tuple[int, str]] = Counter()
        """By rank and phase: the time (ns) of critical paths."""
        self._size = 1
        self._resource = Resource()
        self._since = 0

    @property
    def verdict(self) -> JobVerdict:
        """The current verdict."""
        return self._tracker.verdict

    def compare(self, ranks: Ranks) -> bool:
        """Compares the ranks; returns whether the verdict changed."""
        return self._tracker.update({rank: process.window for rank, process in ranks.items()})

    def advance(self, ranks: Ranks, size: int, resource: Resource) -> Iterator[Batch]:
        """Aligns the steps of the ranks' last reports, and yields the traces. `size` is the number of ranks of the job,
        also of those at other collectors. `resource` is that of the job's spans."""
        self._size, self._resource = size, resource
        popped = {rank: process.pop_steps() for rank, process in ranks.items()}
        if self._traces:
            self._traces.hold({rank: (ranks[rank], candidates) for rank, (_, candidates) in popped.items()})
        origins = {rank: RankOrigin(one.identity.host, one.identity.seed) for rank, one in ranks.items()}
        work = self._steps.update({rank: steps for rank, (steps, _) in popped.items()}, origins)
        try:
            while True:
                next(work)
                yield PAUSE
        except StopIteration as done:
            steps, alone = done.value
        for rank, process in ranks.items():
            process.align(self._steps.offsets.get(rank))
        yield from self._finish(steps)
        if self._traces:
            yield from self._traces.of_ranks(alone)

    def report(self, since: int, now: int) -> Batch:
        """The metrics at `now` (ns). Cumulative sums start at the `since` (ns) of the first call."""
        self._since = self._since or since
        metrics = job_metrics(self.verdict, self._critical, self._since, now)
        return Batch(metrics=metrics_data(self._resource, metrics))

    def end(self) -> Iterator[Batch]:
        """The traces of the steps that still wait for a rank."""
        yield from self._finish(self._steps.end())

    def _finish(self, steps: list[JobStep]) -> Iterator[Batch]:
        for position, step in enumerate(steps, 1):
            self._add_path(step)
            if position % _CHUNK == 0:
                yield PAUSE
        if self._traces:
            yield from self._traces.of_steps(steps, self._resource, self._size)

    def _add_path(self, step: JobStep) -> None:
        path = step.critical_path if len(step.ranks) == self._size else None
        if path:
            self._critical.update({(path.rank, phase): spent for phase, spent in path.phase_ns.items()})
