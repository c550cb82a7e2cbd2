"""Reads the batches that `ebpf`, `nvml` and `phases` emit."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, Metric
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue
from otel_zernel_commands.why.seen.gpus import SeenGpu
from otel_zernel_commands.why.seen.processes import SeenJob, SeenProcess
from otel_zernel_commands.why.seen.step_spans import bars_of
from otel_zernel_libraries.training import SeenValue, numbers_of, scalars_of

MOST_PROCESSES = 1000
"""Processes to follow: as many as `phases` follows."""


class Sightings:
    """All processes, jobs and GPUs so far."""

    def __init__(
        self,
        read_command: Callable[[int], tuple[str, ...]] = lambda _: (),
        read_ancestors: Callable[[int], tuple[int, ...]] = lambda _: (),
    ) -> None:
        """The functions read the command line and the ancestors of a pid. They are called once for each process."""
        self._read_command = read_command
        self._read_ancestors = read_ancestors
        self._processes: dict[tuple[int, str], SeenProcess] = {}
        self._jobs: dict[tuple[tuple[str, str], ...], SeenJob] = {}
        self._gpus: dict[str, SeenGpu] = {}
        self._workers_from: dict[tuple[str, int], float] = {}

    @property
    def processes(self) -> list[SeenProcess]:
        """By pid."""
        return sorted(self._processes.values(), key=lambda one: one.pid)

    @property
    def jobs(self) -> list[SeenJob]:
        """The jobs with several ranks, the latest first."""
        return sorted(self._jobs.values(), key=lambda one: -one.seen_at)

    @property
    def gpus(self) -> list[SeenGpu]:
        """By index."""
        return sorted(self._gpus.values(), key=lambda one: one.index)

    def add(self, batch: Batch) -> None:
        """Adds a batch and leaves it unchanged."""
        for of_resource in batch.metrics.resource_metrics:
            resource = scalars_of(of_resource.resource.attributes)
            for metric in (metric for scope in of_resource.scope_metrics for metric in scope.metrics):
                self._add_metric(metric, resource)
        for spans in batch.spans.resource_spans:
            self._add_spans(spans)

    def _add_metric(self, metric: Metric, resource: dict[str, AttributeValue]) -> None:
        if metric.name == "zernel.step.duration":
            self._add_durations(metric.histogram.data_points, resource)
        elif read := _READERS.get(metric.name):
            for seen in numbers_of(metric, resource):
                if seen.value is not None:
                    read(self, seen, seen.value)

    def _add_durations(self, points: Iterable[HistogramDataPoint], resource: dict[str, AttributeValue]) -> None:
        process = self.process_of(resource)
        for point in points:
            if process and point.count:
                named = scalars_of(point.attributes)
                times = process.lossy_times if named.get("zernel.step.lossy") else process.times
                times[str(named.get("zernel.step.kind", ""))].add_point(point)

    def process_of(self, resource: Mapping[str, AttributeValue]) -> SeenProcess | None:
        """The process of a resource; None if it is no process, or one too many."""
        pid = resource.get("process.pid")
        if not isinstance(pid, int):
            return None
        key = (pid, str(resource.get("process.creation.time", "")))
        found = self._processes.get(key)
        if found is None:
            if len(self._processes) >= MOST_PROCESSES:
                return None
            found = SeenProcess(dict(resource), self._read_command(pid), self._read_ancestors(pid))
            self._processes[key] = found
        found.attributes.update(resource)
        return found

    def processes_of_pid(self, pid: AttributeValue | None) -> Iterator[SeenProcess]:
        """The processes with this pid. Readings of `ebpf` name a process by its pid alone."""
        return (one for one in self._processes.values() if one.pid == pid)

    def job_of(self, seen: SeenValue) -> SeenJob:
        """The job of a resource."""
        key = tuple(sorted((name, str(value)) for name, value in seen.resource.items()))
        job = self._jobs.setdefault(key, SeenJob(dict(seen.resource)))
        job.seen_at = max(job.seen_at, seen.time_ns)
        return job

    def gpu_of(self, seen: SeenValue) -> SeenGpu | None:
        """The GPU of a point; None if the point names none."""
        attributes = {**seen.resource, **seen.attributes}
        id_ = attributes.get("hw.id", attributes.get("zernel.gpu.index"))
        if id_ is None:
            return None
        gpu = self._gpus.setdefault(str(id_), SeenGpu(attributes))
        gpu.attributes.update({key: value for key, value in attributes.items() if key not in gpu.attributes})
        return gpu

    def since_first(self, name: str, pid: int, total: float) -> float:
        """How much a cumulative sum about a process has grown since its first point."""
        return total - self._workers_from.setdefault((name, pid), total)

    def _add_spans(self, spans: ResourceSpans) -> None:
        if process := self.process_of(scalars_of(spans.resource.attributes)):
            for bar in bars_of(spans):
                process.bars.add(bar)


# One function for each metric. Sums are cumulative, so the latest value counts.


def _phase_time(all_: Sightings, seen: SeenValue, value: float) -> None:
    if process := all_.process_of(seen.resource):
        process.phases[seen.text("zernel.phase"), seen.text("zernel.phase.source")] = value


def _detail_time(all_: Sightings, seen: SeenValue, value: float) -> None:
    if process := all_.process_of(seen.resource):
        at = (seen.text("zernel.phase"), seen.text("zernel.phase.detail"), seen.text("zernel.phase.source"))
        process.details[at] = value


def _steps(all_: Sightings, seen: SeenValue, value: float) -> None:
    if process := all_.process_of(seen.resource):
        process.steps[seen.text("zernel.step.kind"), seen.text("zernel.step.boundary")] = int(value)


def _lossy(all_: Sightings, seen: SeenValue, value: float) -> None:
    if process := all_.process_of(seen.resource):
        process.lossy_steps[seen.text("zernel.step.kind")] = int(value)


def _lossy_time(all_: Sightings, seen: SeenValue, value: float) -> None:
    if process := all_.process_of(seen.resource):
        at = (seen.text("zernel.phase"), seen.text("zernel.phase.detail"), seen.text("zernel.phase.source"))
        process.lossy_details[at] = value


def _missing_mark(all_: Sightings, seen: SeenValue, value: float) -> None:
    for process in all_.processes_of_pid(seen.attributes.get("process.pid", seen.resource.get("process.pid"))):
        if seen.attributes.get("zernel.sampled"):
            process.has_sampled_operators = True
        elif value:
            process.missing_marks.add(seen.text("zernel.mark"))
        else:
            process.missing_marks.discard(seen.text("zernel.mark"))


def _workers(all_: Sightings, seen: SeenValue, value: float) -> None:
    for process in all_.processes_of_pid(seen.attributes.get("process.pid")):
        process.workers = max(process.workers, int(value))


def _worker_cpu(all_: Sightings, seen: SeenValue, value: float) -> None:
    for process in all_.processes_of_pid(seen.attributes.get("process.pid")):
        process.worker_cpu_s = all_.since_first("cpu", process.pid, value)


def _worker_io(all_: Sightings, seen: SeenValue, value: float) -> None:
    for process in all_.processes_of_pid(seen.attributes.get("process.pid")):
        process.worker_io_wait_s = all_.since_first("io", process.pid, value)


def _job(all_: Sightings, seen: SeenValue, value: float) -> None:
    all_.job_of(seen)


def _utilization(all_: Sightings, seen: SeenValue, value: float) -> None:
    if seen.text("hw.gpu.task") in ("", "general") and (gpu := all_.gpu_of(seen)):
        gpu.utilization.add(value)


def _power(all_: Sightings, seen: SeenValue, value: float) -> None:
    if gpu := all_.gpu_of(seen):
        gpu.power.add(value)


def _temperature(all_: Sightings, seen: SeenValue, value: float) -> None:
    if seen.text("hw.sensor_location") in ("", "gpu") and (gpu := all_.gpu_of(seen)):
        gpu.temperature.add(value)


def _memory(all_: Sightings, seen: SeenValue, value: float) -> None:
    if gpu := all_.gpu_of(seen):
        gpu.memory.add(value)


def _throttled(all_: Sightings, seen: SeenValue, value: float) -> None:
    if gpu := all_.gpu_of(seen):
        gpu.throttled[seen.text("zernel.gpu.throttle.reason")].add(value)


def _gpu_process(all_: Sightings, seen: SeenValue, value: float) -> None:
    pid = seen.attributes.get("process.pid")
    if isinstance(pid, int) and (gpu := all_.gpu_of(seen)):
        gpu.pids.add(pid)


_READERS: dict[str, Callable[[Sightings, SeenValue, float], None]] = {
    "zernel.phase.time": _phase_time,
    "zernel.phase.detail.time": _detail_time,
    "zernel.steps": _steps,
    "zernel.steps.lossy": _lossy,
    "zernel.phase.lossy.time": _lossy_time,
    "zernel.ebpf.missing_marks": _missing_mark,
    "zernel.dataloader.workers": _workers,
    "zernel.dataloader.worker.cpu.time": _worker_cpu,
    "zernel.dataloader.worker.io.wait": _worker_io,
    "zernel.job.verdict": _job,
    "hw.gpu.utilization": _utilization,
    "hw.power": _power,
    "hw.temperature": _temperature,
    "hw.gpu.memory.utilization": _memory,
    "zernel.gpu.throttle.active": _throttled,
    "zernel.gpu.process.memory.usage": _gpu_process,
}
