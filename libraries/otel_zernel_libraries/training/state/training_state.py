"""One state of all trainings whose batches arrive: processes, jobs, GPUs and latencies."""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    HistogramDataPoint,
    Metric,
    SummaryDataPoint,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from otel_zernel.batch import Batch
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.durations import Counts, HistogramPoint, RecentDurations
from otel_zernel_libraries.training.increases import DurationIncreases, series_of
from otel_zernel_libraries.training.interval_spans import ProcessSpan, interval_of
from otel_zernel_libraries.training.points import LONGEST_TEXT, SeenValue, numbers_of, scalars_of
from otel_zernel_libraries.training.span_attributes import MalformedSpan
from otel_zernel_libraries.training.state.gpus import GPU_READERS, gpu_id_of
from otel_zernel_libraries.training.state.jobs import JOB_READERS
from otel_zernel_libraries.training.state.latencies import COLLECTIVES, LAUNCHES, WAITS, Latencies
from otel_zernel_libraries.training.state.memory import MEMORY_READERS
from otel_zernel_libraries.training.state.processes import (
    EBPF_READERS,
    PHASES_READERS,
    STEPS,
    ProcessEnd,
    SeenProcess,
)
from otel_zernel_libraries.training.state.readers import TooManySeries
from otel_zernel_libraries.training.state.step_bars import bars_of
from otel_zernel_libraries.training.state.training_entities import Resource, TrainingEntities
from otel_zernel_libraries.training.step_spans import SCOPE_NAME, JobStepSpan, MergedStepsSpan, StepSpan

_MOST_TRACES: Final = 1024
"""Steps of jobs whose critical rank is remembered until the steps of the ranks arrive."""
Entity = TypeVar("Entity")


class TrainingState(TrainingEntities):
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
        super().__init__(expiration=expiration, kept_after_end=kept_after_end, rows=rows, appeared=appeared)
        self.latencies = Latencies()
        """Those of all processes together, also of processes that do not train."""
        self._keeps_all_steps = keeps_all_steps
        self._keeps_latencies = keeps_latencies
        self._readers = {name: read for name, read in _READERS.items() if metrics(name)}
        self._critical: OrderedDict[bytes, int] = OrderedDict()
        """By the id of a trace: the rank on the critical path of a job's step."""
        self._increases = DurationIncreases(expiration, partial(self.refuse, "max_series"))

    def add(self, batch: Batch, now: float) -> None:
        """Adds a batch, which stays as it is. Raises `DecodeError`."""
        for of_resource in batch.metrics.resource_metrics:
            resource: Resource | None = None
            for metric in (metric for scope in of_resource.scope_metrics for metric in scope.metrics):
                if read := self._readers.get(metric.name):
                    resource = scalars_of(of_resource.resource.attributes) if resource is None else resource
                    read(self, metric, resource, now)
                    self.touched = now
        for spans in batch.spans.resource_spans:
            self._add_spans(spans, now)
        for logs in batch.logs.resource_logs:
            self.add_records(logs, now)

    def settle(self, now: float) -> None:
        """Lets the old leave, and finds the job of each process."""
        self._increases.sweep(now)
        super().settle(now)

    def add_histogram(
        self, metric: str, point: HistogramPoint, temporality: int, resource: Resource, now: float
    ) -> None:
        """Adds the durations of a histogram."""
        attributes = scalars_of(point.attributes)
        if has_no_value(point):
            self._increases.end(series_of(metric, resource, attributes))
            return
        if not point.count:
            return
        process = self.process_of(resource, attributes, point.time_unix_nano, now, makes=metric == STEPS)
        recents = self._recent(process, metric, attributes)
        counts = Counts()
        if recents:
            counts = self._increases.counts(point, temporality, partial(series_of, metric, resource, attributes), now)
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
        series = series_of(metric, resource, attributes)
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
            is_of_phases = scope.scope.name == SCOPE_NAME
            ends, steps = list[Span](), list[Span]()
            for span in scope.spans:
                name = span.name
                if name == ProcessSpan.kind:
                    ends.append(span)
                elif is_of_phases and name == JobStepSpan.name:
                    self._add_job_step(span)
                elif is_of_phases and (self._keeps_all_steps or name in (StepSpan.name, MergedStepsSpan.name)):
                    steps.append(span)
            for span, bar in bars_of(steps, self.refuse_malformed, with_segments=self._keeps_all_steps):
                process = self.process_of(resource, {}, span.end_time_unix_nano, now)
                if process and bar.duration_ns >= 0:
                    critical = self._critical.get(span.trace_id)
                    if self._rows:
                        process.rows.add(bar, is_critical=critical is not None and critical == process.rank)
                    if self._keeps_all_steps:
                        process.bars.add(bar)
            for span in ends:
                self._add_end(span, resource, now)

    def _add_job_step(self, span: Span) -> None:
        """`phases` emits the step of a job before the steps of its ranks."""
        try:
            path = JobStepSpan.from_span(span).critical_path
        except MalformedSpan as error:
            self.refuse_malformed(error)
            return
        if path:
            self._critical[span.trace_id] = path.rank
            if len(self._critical) > _MOST_TRACES:
                self._critical.popitem(last=False)

    def _add_end(self, span: Span, resource: Resource, now: float) -> None:
        try:
            ended = interval_of(span)
        except MalformedSpan as error:
            self.refuse_malformed(error)
            return
        if not isinstance(ended, ProcessSpan):  # another program's span of this name
            return
        process, ending = self.process_of(resource, {}, ended.end_ns, now, is_end=True), ended.ending
        if process is None or process.end or not ending.is_over:
            return
        process.ended_at = now if process.ended_at is None else process.ended_at
        code = ending.exit_code if ending.way == "exit" else None
        process.end = ProcessEnd(ended.end_ns, code, ending.signal_name[:LONGEST_TEXT] or None)


Read = Callable[[TrainingState, Metric, Resource, float], None]


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


def _hung(state: TrainingState, metric: Metric, resource: Resource, now: float) -> None:
    """A job, or a process that trains alone, hangs or goes on."""
    for seen in numbers_of(metric, resource):
        trained = state.job_at(seen, now) or state.process_at(seen, now, makes=False)
        if trained and not seen.value:
            trained.hang = None


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
    semconv.JOB_HUNG: _hung,
    **dict.fromkeys(MEMORY_READERS, _memory),
    **{
        name + suffix: partial(_durations, name)
        for name in (STEPS, LAUNCHES, COLLECTIVES, WAITS)
        for suffix in ("", ".distribution", ".percentiles")
    },
}
"""By metric: how it changes the state."""
