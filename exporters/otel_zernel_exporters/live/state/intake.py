"""Reads batches into the state of ranks, GPUs and jobs."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_exporters.live.state.gpus import GPU_READERS, LiveGpu, gpu_id_of
from otel_zernel_exporters.live.state.jobs import JOB_READERS, LiveJob, job_key_of
from otel_zernel_exporters.live.state.membership import JobMembership
from otel_zernel_exporters.live.state.rank_readers import RANK_READERS
from otel_zernel_exporters.live.state.ranks import LiveRank, rank_id_of
from otel_zernel_exporters.live.state.tables import LONGEST_TEXT, Entities, bounded
from otel_zernel_exporters.live.state.timeline import StepRows
from otel_zernel_libraries.training import MERGED_STEPS, TRAINED, SeenValue, bar_of, numbers_of, scalars_of
from otel_zernel_libraries.training.durations import RecentDurations

MOST_RANKS: Final = 1024
MOST_GPUS: Final = 1024
MOST_JOBS: Final = 128
"""Jobs of several ranks. Those of one rank are as many as the ranks."""
_MOST_TRACES: Final = 1024
"""Steps of jobs whose critical rank is remembered until the steps of the ranks arrive."""
_MOST_OPERATIONS: Final = 16
_SCOPE: Final = "otel_zernel_processors.phases"
_PIECE: Final = 200
"""Spans between two yields: about 1 ms."""
_DURATIONS: Final = frozenset(
    name + suffix
    for name in ("zernel.step.duration", "zernel.nccl.collective.duration", "zernel.cuda.launch.latency")
    for suffix in ("", ".distribution", ".percentiles")
)
"""Histograms, and the results of `percentiles` for them."""
_AGEING: Final = 5.0
"""Seconds between two looks for durations that are older than a minute."""
_OF_WATCHED: Final = ("zernel.phase.elapsed", "zernel.ebpf.", "zernel.dataloader.", "zernel.cuda.", "zernel.nccl.")
"""Prefixes of the metrics that `ebpf` emits for every process it watches. Only those of `phases` make a rank."""
Resource = Mapping[str, AttributeValue]


class TrainingState:
    """The ranks, GPUs and jobs whose data arrives. All times are monotonic (s) unless noted otherwise."""

    def __init__(self, history: int, expiration: float, drop: Callable[[int, str], None]) -> None:
        """`history` is the number of steps shown of a rank. Data beyond the limits is dropped by reason."""
        self.drop = drop
        self.ranks: Entities[LiveRank] = Entities(MOST_RANKS, expiration, lambda: self.drop(1, "max_ranks"))
        self.gpus: Entities[LiveGpu] = Entities(MOST_GPUS, expiration, lambda: self.drop(1, "max_gpus"))
        self.jobs: Entities[LiveJob] = Entities(MOST_JOBS, expiration, lambda: self.drop(1, "max_jobs"))
        self._membership = JobMembership(self.ranks, self.jobs)
        self._history = history
        self._by_pid: dict[tuple[str, int], str] = {}
        """The rank that had data last, by host and pid."""
        self._critical: OrderedDict[bytes, int] = OrderedDict()
        """By the id of a trace: the rank on the critical path of a job's step."""
        self._aged = 0.0

    def adding(self, batch: Batch, now: float) -> Iterator[None]:
        """Adds a batch, which stays as it is, and yields about every millisecond. Raises `DecodeError`."""
        for metrics in batch.metrics.resource_metrics if batch.has_metrics else ():
            yield from self._add_metrics(metrics, now)
        for spans in batch.spans.resource_spans if batch.has_spans else ():
            yield from self._add_spans(spans, now)

    def settle(self, now: float) -> None:
        """Lets the old leave, closes columns that are due, and finds the job of each rank."""
        self._membership.live_as_long_as_their_ranks()
        for table in (self.ranks, self.gpus, self.jobs):
            table.sweep(now)
        for rank in self.ranks.left:
            if self._by_pid.get(rank.host_and_pid) == rank.id:
                del self._by_pid[rank.host_and_pid]
        self._membership.is_due |= bool(self.ranks.left or self.jobs.left)
        for left in (self.ranks.left, self.gpus.left, self.jobs.left):
            left.clear()
        self._membership.settle(now)
        if now - self._aged >= _AGEING:
            self._aged = now
            self.ranks.changed.update(rank.id for rank in self.ranks if rank.is_ageing(now))

    def _add_metrics(self, of_resource: ResourceMetrics, now: float) -> Iterator[None]:
        resource = scalars_of(of_resource.resource.attributes)
        for metric in (metric for scope in of_resource.scope_metrics for metric in scope.metrics):
            name = metric.name
            if name in GPU_READERS:
                self._add_to_gpus(metric, resource, now)
            elif name in RANK_READERS:
                self._add_to_ranks(metric, resource, now)
            elif name in JOB_READERS:
                self._add_to_jobs(metric, resource, now)
            elif name == "zernel.gpu.process.memory.usage":
                self._add_gpu_use(metric, resource)
            elif name in _DURATIONS:
                self._add_durations(metric, resource, now)
            else:
                continue
            yield

    def _add_to_gpus(self, metric: Metric, resource: Resource, now: float) -> None:
        read = GPU_READERS[metric.name]
        for seen in numbers_of(metric, resource):
            if gpu := self._gpu_of(seen, now):
                read(gpu, seen)

    def _gpu_of(self, seen: SeenValue, now: float) -> LiveGpu | None:
        id_ = gpu_id_of(seen)
        if not id_:
            return None
        if seen.value is None:  # the end of a series is no sign of life
            self.gpus.changed.add(id_)
            return self.gpus.get(id_)
        gpu = self.gpus.touch(id_, lambda: LiveGpu(str(seen.resource.get("host.name", ""))[:LONGEST_TEXT]), now)
        if gpu:
            gpu.seen_ns = max(gpu.seen_ns, seen.time_ns)
            gpu.describe(seen.resource)
            gpu.describe(seen.attributes)
        return gpu

    def _add_to_ranks(self, metric: Metric, resource: Resource, now: float) -> None:
        read = RANK_READERS[metric.name]
        makes = not metric.name.startswith(_OF_WATCHED)
        for seen in numbers_of(metric, resource):
            is_end = seen.value is None
            rank = self._rank_of(resource, seen.attributes, seen.time_ns, now, makes=makes, is_end=is_end)
            if rank is None:
                continue
            read(rank, seen)
            if metric.name == "zernel.phase.time" and seen.value is not None:
                source, phase = seen.text("zernel.phase.source"), seen.text("zernel.phase")
                self._membership.add_phase(rank, source, phase, seen.time_ns, now)

    def _rank_of(
        self,
        resource: Resource,
        attributes: Resource,
        time_ns: int,
        now: float,
        *,
        makes: bool = True,
        is_end: bool = False,
    ) -> LiveRank | None:
        """The rank of a point: the resource is a process, or the point has the pid of a process that is known.

        Without `makes`, only a rank that is known. `is_end`: the point ends a series, and is no sign of life.
        """
        pid = attributes.get("process.pid", resource.get("process.pid"))
        if not isinstance(pid, int):
            return None
        at = str(resource.get("host.name", "")), pid
        is_process = "process.pid" in resource
        id_ = self._id_of(resource, at)
        known = self.ranks.get(id_)
        if is_end or (known is None and not (makes and is_process)):
            if known:
                self.ranks.changed.add(id_)
            return known
        rank = self.ranks.touch(id_, lambda: LiveRank(id_, StepRows(self._history), appeared=now), now)
        if rank:
            self._by_pid[at] = id_
            rank.seen_ns = max(rank.seen_ns, time_ns)
            if is_process and not resource.items() <= rank.attributes.items():
                rank.attributes = bounded({**rank.attributes, **resource})
                self._membership.is_due = True
        return rank

    def _id_of(self, resource: Resource, at: tuple[str, int]) -> str:
        """The id of a rank by its resource, or by its host and pid. Empty if neither is known."""
        if "process.creation.time" in resource:
            return rank_id_of(resource)
        return self._by_pid.get(at, "") or (rank_id_of(resource) if "process.pid" in resource else "")

    def _add_to_jobs(self, metric: Metric, resource: Resource, now: float) -> None:
        key = job_key_of(resource)
        if not key:
            return
        for seen in numbers_of(metric, resource):
            if seen.value is None:
                self.jobs.changed.add(key[1])
                job = self.jobs.get(key[1])
            else:
                is_new = self.jobs.get(key[1]) is None
                job = self.jobs.touch(key[1], lambda: LiveJob(key), now)
                self._membership.is_due |= is_new and job is not None
            if job:
                JOB_READERS[metric.name](job, seen)

    def _add_gpu_use(self, metric: Metric, resource: Resource) -> None:
        """A process has memory on a GPU. Of several GPUs, the one that was reported last counts."""
        for seen in numbers_of(metric, resource):
            pid = seen.attributes.get("process.pid")
            at = str(resource.get("host.name", "")), pid if isinstance(pid, int) else -1
            rank = self.ranks.get(self._by_pid.get(at, ""))
            id_ = gpu_id_of(seen)
            if rank and id_ and seen.value is not None and rank.gpu != id_:
                rank.gpu = id_
                self.ranks.changed.add(rank.id)

    def _add_durations(self, metric: Metric, resource: Resource, now: float) -> None:
        makes = not metric.name.startswith(_OF_WATCHED)
        histogram = metric.histogram if metric.HasField("histogram") else metric.exponential_histogram
        for point in histogram.data_points:
            attributes = scalars_of(point.attributes)
            if not point.count or has_no_value(point):
                continue
            rank = self._rank_of(resource, attributes, point.time_unix_nano, now, makes=makes)
            of = _distribution(rank, metric.name, attributes) if rank else None
            if rank and of:
                series = tuple(sorted((key, str(value)) for key, value in attributes.items()))
                added = of.add(point, histogram.aggregation_temporality, series, now)
                if of is rank.trained or of is rank.passes:
                    self._membership.add_durations(rank, added, point.time_unix_nano, now)
        for summary in metric.summary.data_points:
            attributes = scalars_of(summary.attributes)
            if has_no_value(summary):
                continue
            rank = self._rank_of(resource, attributes, summary.time_unix_nano, now, makes=makes)
            if rank and (of := _distribution(rank, metric.name, attributes)):
                of.add_summary(summary, now)

    def _add_spans(self, of_resource: ResourceSpans, now: float) -> Iterator[None]:
        resource = scalars_of(of_resource.resource.attributes)
        for scope in of_resource.scope_spans:
            of_phases = scope.scope.name == _SCOPE
            for position, span in enumerate(scope.spans, 1):
                if span.name in ("step", MERGED_STEPS) and of_phases:
                    self._add_step(span, resource, now)
                elif span.name == "job step" and of_phases:
                    self._add_job_step(span)
                elif span.name == "process":
                    self._add_end(span, resource, now)
                if position % _PIECE == 0:
                    yield
        yield

    def _add_step(self, span: Span, resource: Resource, now: float) -> None:
        rank = self._rank_of(resource, {}, span.end_time_unix_nano, now)
        if rank and span.end_time_unix_nano >= span.start_time_unix_nano:
            critical = self._critical.get(span.trace_id)
            rank.steps_shown.add(bar_of(span), is_critical=critical is not None and critical == rank.rank)

    def _add_job_step(self, span: Span) -> None:
        """`phases` emits the step of a job before the steps of its ranks."""
        rank = scalars_of(span.attributes).get("zernel.step.critical_path.rank")
        if isinstance(rank, int):
            self._critical[span.trace_id] = rank
            if len(self._critical) > _MOST_TRACES:
                self._critical.popitem(last=False)

    def _add_end(self, span: Span, resource: Resource, now: float) -> None:
        rank = self._rank_of(resource, {}, span.end_time_unix_nano, now, is_end=True)
        named = scalars_of(span.attributes)
        if rank is None or rank.ended_at is not None or named.get("zernel.process.end") not in ("exit", "signal"):
            return
        rank.ended_at = now
        rank.end = {"time": span.end_time_unix_nano // 1_000_000}
        for field, key in (("code", "process.exit.code"), ("signal", "process.signal")):
            if key in named:
                rank.end[field] = bounded(named)[key]


def _distribution(rank: LiveRank, name: str, attributes: Resource) -> RecentDurations | None:
    """The distribution of a rank that a metric describes."""
    if name.startswith("zernel.step.duration"):
        kind = attributes.get("zernel.step.kind")
        if kind in TRAINED:
            return rank.trained
        return rank.passes if kind in ("evaluation", "inference") and not rank.has_trained else None
    if name.startswith("zernel.cuda.launch.latency"):
        return rank.launches
    operation = str(attributes.get("zernel.nccl.operation", ""))[:LONGEST_TEXT]
    if operation not in rank.collectives and len(rank.collectives) >= _MOST_OPERATIONS:
        return None
    return rank.collectives.setdefault(operation, RecentDurations())
