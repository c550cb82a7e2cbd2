"""One state of all trainings whose batches arrive: processes, jobs, GPUs and latencies."""

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from typing import Final, TypeVar

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    HistogramDataPoint,
    Metric,
    SummaryDataPoint,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.distributions import HistogramPoint
from otel_zernel_libraries.training.durations import Counts, RecentDurations
from otel_zernel_libraries.training.increases import DurationIncreases
from otel_zernel_libraries.training.interval_spans import ProcessSpan, interval_of
from otel_zernel_libraries.training.points import LONGEST_TEXT, SeenValue, numbers_of, scalars_of
from otel_zernel_libraries.training.span_attributes import MalformedSpan
from otel_zernel_libraries.training.state.gpus import GPU_READERS, SeenGpu, gpu_id_of
from otel_zernel_libraries.training.state.jobs import JOB_READERS, SeenJob, assign, job_key_of, spread_lateness
from otel_zernel_libraries.training.state.latencies import COLLECTIVES, LAUNCHES, WAITS, Latencies
from otel_zernel_libraries.training.state.memory import MEMORY_READERS, SeenMemory, memory_key_of
from otel_zernel_libraries.training.state.processes import (
    EBPF_READERS,
    PHASES_READERS,
    STEPS,
    ProcessEnd,
    SeenProcess,
    process_id_of,
)
from otel_zernel_libraries.training.state.readers import TooManySeries
from otel_zernel_libraries.training.state.step_bars import bars_of
from otel_zernel_libraries.training.state.step_rows import StepRows
from otel_zernel_libraries.training.state.tables import Entities, bounded
from otel_zernel_libraries.training.step_spans import SCOPE_NAME, JobStepSpan

_MOST_PROCESSES: Final = 1024
_MOST_GPUS: Final = 1024
_MOST_JOBS: Final = 128
"""Jobs of several ranks."""
_MOST_MEMORIES: Final = 1024
"""Pairs of a process and a GPU."""
_MOST_TRACES: Final = 1024
"""Steps of jobs whose critical rank is remembered until the steps of the ranks arrive."""
_AGEING: Final = 5.0
"""Seconds between two looks for durations that are older than a minute."""
Resource = Mapping[str, AttributeValue]
Entity = TypeVar("Entity")


class TrainingState:
    """The processes, jobs, GPUs and latencies of the last time. All times are monotonic (s) unless noted otherwise.

    It is plain and synchronous: one thread at a time may use it. The end of a series or of an entity does the same
    for all its readers:

    - A gauge ends with a point without a recorded value: its value is not known any more.
    - A cumulative sum of a process (time in phases, steps) keeps its value, as evidence of the watched time, and is
      not current any more: see `SeriesSums.current`. A mean of a GPU stays, too.
    - A cumulative histogram begins anew with its next point. A summary has no values any more. Durations in histograms
      leave a minute after they arrived.
    - A process ends with the span `process` and `zernel.process.end` (`exit` or `signal`), and stays for
      `kept_after_end`. Late data does not revive it. A reused pid is another process, as the creation time says. Data
      with a pid alone belongs to the process of that pid that had data last.
    - A job, a GPU or the memory of a process has no end of its own. Like a process, it leaves after `expiration`
      without data; memory also with the end of its gauge `used`.
    """

    def __init__(
        self,
        *,
        expiration: float = math.inf,
        kept_after_end: float = math.inf,
        rows: int = 0,
        keeps_all_steps: bool = False,
        keeps_latencies: bool = False,
        appeared: Callable[[SeenProcess], None] = lambda _: None,
        metrics: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`rows` is the number of rows of the newest steps of a process. `keeps_all_steps`: also with their parts and
        durations. `keeps_latencies`: of all processes together. `appeared` is called once for each new process.
        `metrics` selects the metrics to read.
        """
        self._dropped: deque[str] = deque()
        """The reasons of items beyond the limits. Both ends may be used by different threads."""
        ages = expiration, kept_after_end
        self.processes: Entities[SeenProcess] = Entities(_MOST_PROCESSES, *ages, partial(self.refuse, "max_ranks"))
        self.jobs: Entities[SeenJob] = Entities(_MOST_JOBS, *ages, partial(self.refuse, "max_jobs"))
        self.gpus: Entities[SeenGpu] = Entities(_MOST_GPUS, *ages, partial(self.refuse, "max_gpus"))
        self.memory: Entities[SeenMemory] = Entities(_MOST_MEMORIES, *ages, partial(self.refuse, "max_processes"))
        self.latencies = Latencies()
        """Those of all processes together, also of processes that do not train."""
        self.touched = -math.inf
        """When the newest data that was read arrived."""
        self._are_jobs_due = False
        """Whether processes or jobs are new, or their names have changed."""
        self._rows = rows
        self._keeps_all_steps = keeps_all_steps
        self._keeps_latencies = keeps_latencies
        self._appeared = appeared
        self._readers = {name: read for name, read in _READERS.items() if metrics(name)}
        self._by_pid: dict[tuple[str, int], str] = {}
        """The process that had the pid last, by host and pid."""
        self._critical: OrderedDict[bytes, int] = OrderedDict()
        """By the id of a trace: the rank on the critical path of a job's step."""
        self._increases = DurationIncreases(expiration, partial(self.refuse, "max_series"))
        self._aged = 0.0

    def add(self, batch: Batch, now: float) -> None:
        """Adds a batch, which stays as it is. Raises `DecodeError`."""
        for of_resource in batch.metrics.resource_metrics if batch.has_metrics else ():
            resource: Resource | None = None
            for metric in (metric for scope in of_resource.scope_metrics for metric in scope.metrics):
                if read := self._readers.get(metric.name):
                    resource = scalars_of(of_resource.resource.attributes) if resource is None else resource
                    read(self, metric, resource, now)
                    self.touched = now
        for spans in batch.spans.resource_spans if batch.has_spans else ():
            self._add_spans(spans, now)

    def settle(self, now: float) -> None:
        """Lets the old leave, and finds the job of each process."""
        for table in (self.processes, self.gpus, self.jobs, self.memory):
            table.sweep(now)
        self._increases.sweep(now)
        for process in self.processes.left:
            if self._by_pid.get(at := (process.host, process.pid)) == process.id:
                del self._by_pid[at]
        self._are_jobs_due |= bool(self.processes.left or self.jobs.left)
        for left in (self.processes.left, self.gpus.left, self.jobs.left, self.memory.left):
            left.clear()
        self.memory.changed.clear()  # no reader follows them
        if self._are_jobs_due:
            self._are_jobs_due = assign(self.processes, self.jobs, now)
        spread_lateness(self.processes, self.jobs)
        if now - self._aged >= _AGEING:
            self._aged = now
            self.processes.changed.update(process.id for process in self.processes if process.is_ageing(now))

    def take_dropped(self) -> Counter[str]:
        """The number of items beyond the limits since the last call, by reason. Any thread may call it."""
        taken = Counter[str]()
        while self._dropped:
            taken[self._dropped.popleft()] += 1
        return taken

    def process_of(
        self,
        resource: Resource,
        attributes: Resource,
        time_ns: int,
        now: float,
        *,
        makes: bool = True,
        is_end: bool = False,
    ) -> SeenProcess | None:
        """The process of a point or a span: the resource is one, or the point has the pid of one that is known.

        Without `makes`, only a process that is known. `is_end`: a series ends, which is no sign of life.
        """
        pid = attributes.get("process.pid", resource.get("process.pid"))
        if not isinstance(pid, int):
            return None
        at = str(resource.get("host.name", "")), pid
        is_process = "process.pid" in resource
        id_ = self._id_of(resource, at)
        is_new = self.processes.get(id_) is None
        if is_new and not (makes and is_process):
            return None
        process = self.processes.touch(
            id_, lambda: SeenProcess({}, id_, appeared=now, rows=StepRows(self._rows)), now, is_end=is_end
        )
        if process is None or is_end:
            return process
        process.seen_ns = max(process.seen_ns, time_ns)
        if is_process and not resource.items() <= process.attributes.items():
            process.attributes = bounded({**process.attributes, **resource})
            self._are_jobs_due = True
        if is_new:
            self._appeared(process)
        self._by_pid[at] = id_
        return process

    def _id_of(self, resource: Resource, at: tuple[str, int]) -> str:
        """The id of a process by its resource, or by its host and pid. Empty if neither is known."""
        if "process.creation.time" in resource:
            return process_id_of(resource)
        return self._by_pid.get(at, "") or (process_id_of(resource) if "process.pid" in resource else "")

    def process_at(self, seen: SeenValue, now: float, *, makes: bool) -> SeenProcess | None:
        """The process of a point, as `process_of`."""
        is_end = seen.value is None
        return self.process_of(seen.resource, seen.attributes, seen.time_ns, now, makes=makes, is_end=is_end)

    def gpu_at(self, seen: SeenValue, now: float) -> SeenGpu | None:
        """The GPU of a point; None if the point is about none."""
        if not (id_ := gpu_id_of(seen)):
            return None
        host, is_end = str(seen.resource.get("host.name", ""))[:LONGEST_TEXT], seen.value is None
        gpu = self.gpus.touch(id_, lambda: SeenGpu(host), now, is_end=is_end)
        if gpu and not is_end:
            gpu.seen_ns = max(gpu.seen_ns, seen.time_ns)
            gpu.describe(seen.resource)
            gpu.describe(seen.attributes)
        return gpu

    def job_at(self, seen: SeenValue, now: float) -> SeenJob | None:
        """The job of a point; None if the point is about none."""
        if not (key := job_key_of(seen.resource)):
            return None
        known = self.jobs.get(id_ := key[1])
        if known and known.key != key:
            known = self.jobs.get(id_ := "=".join(key))
        is_new = known is None
        job = self.jobs.touch(id_, lambda: SeenJob(key, id_), now, is_end=seen.value is None)
        self._are_jobs_due |= is_new and job is not None
        return job

    def memory_at(self, seen: SeenValue, now: float) -> SeenMemory | None:
        """The memory of a process on a GPU; None if the point is about no process."""
        if not (key := memory_key_of(seen)):
            return None
        id_ = "{}/{}/{}".format(*key)
        return self.memory.touch(id_, lambda: SeenMemory(id_, *key[1:]), now, is_end=seen.value is None)

    def use_gpu(self, host: str, pid: int, gpu: str) -> None:
        """The process with this pid, if it is known, uses the GPU with this id."""
        process = self.processes.get(self._by_pid.get((host, pid), ""))
        if process and process.gpu != gpu:
            process.gpu = gpu
            self.processes.changed.add(process.id)

    def add_histogram(
        self, metric: str, point: HistogramPoint, temporality: int, resource: Resource, now: float
    ) -> None:
        """Adds the durations of a histogram."""
        attributes = scalars_of(point.attributes)
        if has_no_value(point):
            self._increases.end(_series_of(metric, resource, attributes))
            return
        if not point.count:
            return
        process = self.process_of(resource, attributes, point.time_unix_nano, now, makes=metric == STEPS)
        recents = self._recent(process, metric, attributes)
        counts = Counts()
        if recents:
            counts = self._increases.counts(point, temporality, partial(_series_of, metric, resource, attributes), now)
        for recent in recents:
            recent.add(counts, now)
        if process and metric == STEPS:
            if recents:
                process.increase_at(point.time_unix_nano).steps.update(counts)
            if self._keeps_all_steps and isinstance(point, HistogramDataPoint):
                times = process.lossy_times if attributes.get(semconv.STEP_LOSSY) else process.times
                times[str(attributes.get(semconv.STEP_KIND, ""))[:LONGEST_TEXT]].add_point(point)

    def add_summary(self, metric: str, point: SummaryDataPoint, resource: Resource, now: float) -> None:
        """Adds the quantiles of a summary of durations."""
        attributes, is_end = scalars_of(point.attributes), has_no_value(point)
        process = self.process_of(resource, attributes, point.time_unix_nano, now, makes=metric == STEPS, is_end=is_end)
        series = _series_of(metric, resource, attributes)
        for recent in self._recent(process, metric, attributes):
            if is_end:
                recent.end(series)
            elif not recent.add_summary(point, series, now):
                self.refuse("max_series")

    def _recent(self, process: SeenProcess | None, metric: str, attributes: Resource) -> list[RecentDurations]:
        """The distributions that a metric describes: that of its process, and that of all processes."""
        try:
            of_process = process.recent(metric, attributes) if process else None
            of_all = self.latencies.of(metric, attributes) if self._keeps_latencies and metric != STEPS else None
        except TooManySeries:
            self.refuse("max_series")
            return []
        return [recent for recent in (of_process, of_all) if recent]

    def _add_spans(self, of_resource: ResourceSpans, now: float) -> None:
        resource = scalars_of(of_resource.resource.attributes)
        for scope in of_resource.scope_spans:
            if scope.scope.name == SCOPE_NAME:
                for span in scope.spans:
                    if span.name == JobStepSpan.name:
                        self._add_job_step(span)
                for span, bar in bars_of(scope.spans, self._refuse_malformed, with_segments=self._keeps_all_steps):
                    process = self.process_of(resource, {}, span.end_time_unix_nano, now)
                    if process and bar.duration_ns >= 0:
                        critical = self._critical.get(span.trace_id)
                        if self._rows:
                            process.rows.add(bar, is_critical=critical is not None and critical == process.rank)
                        if self._keeps_all_steps:
                            process.bars.add(bar)
            for span in scope.spans:
                if span.name == ProcessSpan.kind:
                    self._add_end(span, resource, now)

    def _add_job_step(self, span: Span) -> None:
        """`phases` emits the step of a job before the steps of its ranks."""
        try:
            path = JobStepSpan.from_span(span).critical_path
        except MalformedSpan:
            self._refuse_malformed()
            return
        if path:
            self._critical[span.trace_id] = path.rank
            if len(self._critical) > _MOST_TRACES:
                self._critical.popitem(last=False)

    def _add_end(self, span: Span, resource: Resource, now: float) -> None:
        try:
            ended = interval_of(span)
        except MalformedSpan:
            self._refuse_malformed()
            return
        if not isinstance(ended, ProcessSpan):  # another program's span of this name
            return
        process, ending = self.process_of(resource, {}, ended.end_ns, now, is_end=True), ended.ending
        if process is None or process.end or not ending.is_over:
            return
        process.ended_at = now if process.ended_at is None else process.ended_at
        code = ending.exit_code if ending.way == "exit" else None
        process.end = ProcessEnd(ended.end_ns, code, ending.signal_name[:LONGEST_TEXT] or None)

    def _refuse_malformed(self) -> None:
        self.refuse("malformed_span")

    def refuse(self, reason: str) -> None:
        """Counts an item beyond the limits."""
        self._dropped.append(reason)


Read = Callable[[TrainingState, Metric, Resource, float], None]


def _series_of(metric: str, resource: Resource, attributes: Resource) -> bytes:
    """Names a series, in 16 bytes."""
    parts = metric, sorted(resource.items()), sorted(attributes.items())
    return blake2b(repr(parts).encode("utf-8", "replace"), digest_size=16).digest()


def _each(
    find: Callable[[TrainingState, SeenValue, float], Entity | None], read: Callable[[Entity, SeenValue], None]
) -> Read:
    """Reads each point of a metric into the entity that it is about."""

    def take(state: TrainingState, metric: Metric, resource: Resource, now: float) -> None:
        for seen in numbers_of(metric, resource):
            if entity := find(state, seen, now):
                try:
                    read(entity, seen)
                except TooManySeries:
                    state.refuse("max_series")

    return take


def _gpu_process(state: TrainingState, metric: Metric, resource: Resource, now: float) -> None:
    """A process has memory on a GPU. Of several GPUs of a process, the one that was reported last counts as its own."""
    for seen in numbers_of(metric, resource):
        pid = seen.attributes.get("process.pid")
        if seen.value is not None and isinstance(pid, int) and (gpu := state.gpu_at(seen, now)):
            gpu.add_user(pid)
            state.use_gpu(str(resource.get("host.name", "")), pid, gpu_id_of(seen))


def _memory(state: TrainingState, metric: Metric, resource: Resource, now: float) -> None:
    """The end of the memory in use ends the use of the GPU."""
    for seen in numbers_of(metric, resource):
        if memory := state.memory_at(seen, now):
            MEMORY_READERS[metric.name](memory, seen)
            if memory.used is None and seen.value is None:
                state.memory.remove(memory.id)


def _durations(base: str, state: TrainingState, metric: Metric, resource: Resource, now: float) -> None:
    """A histogram of durations, or a summary that `percentiles` has made of one."""
    histogram = metric.histogram if metric.HasField("histogram") else metric.exponential_histogram
    for point in histogram.data_points:
        state.add_histogram(base, point, histogram.aggregation_temporality, resource, now)
    for summary in metric.summary.data_points:
        state.add_summary(base, summary, resource, now)


_training, _watched = (partial(TrainingState.process_at, makes=makes) for makes in (True, False))
_READERS: Final[Mapping[str, Read]] = {
    **{name: _each(_training, read) for name, read in PHASES_READERS.items()},
    **{name: _each(_watched, read) for name, read in EBPF_READERS.items()},
    **{name: _each(TrainingState.job_at, read) for name, read in JOB_READERS.items()},
    **{name: _each(TrainingState.gpu_at, read) for name, read in GPU_READERS.items()},
    semconv.GPU_PROCESS_MEMORY_USAGE: _gpu_process,
    **dict.fromkeys(MEMORY_READERS, _memory),
    **{
        name + suffix: partial(_durations, name)
        for name in (STEPS, LAUNCHES, COLLECTIVES, WAITS)
        for suffix in ("", ".distribution", ".percentiles")
    },
}
"""By metric: how it changes the state."""
