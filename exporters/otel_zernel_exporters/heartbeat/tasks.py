"""The running tasks of this worker: processes whose resource names a task or a job."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, ResourceMetrics

from otel_zernel.batch import points
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_exporters.heartbeat.usage import Attributes, scalars, values
from otel_zernel_libraries.training import semconv

_MOST_PROCESSES = 16384
_ProcessId = tuple[str, int]
"""The host of a process, and its pid. Metrics of several hosts may have equal pids."""
RUNNING = "running"


@dataclass(slots=True)
class _Process:
    """A process of a task."""

    task: str
    at: float
    """The monotonic time of the last metric, in s."""
    memory: float = 0.0
    """Bytes."""
    cpus: float = 0.0
    """CPUs that it used between the last two scrapes."""
    spent: tuple[float, float] | None = None
    """The time (s since 1970) and the CPU time (s) of the last scrape."""


@dataclass(frozen=True, slots=True)
class TaskUsage:
    """What a heartbeat says about a task: its processes together."""

    id: str
    cpus: float
    memory: float
    """Bytes."""
    gpus: float


@dataclass(slots=True)
class RunningTasks:
    """The tasks, by the metrics of the last `stale_after` seconds."""

    stale_after: float
    _processes: dict[_ProcessId, _Process] = field(default_factory=dict)
    _gpus: dict[_ProcessId, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """The GPUs that a process uses, and the monotonic time of the last metric."""

    def take(self, metrics: MetricsData, now: float) -> None:
        """Reads the metrics of a batch."""
        for resource in metrics.resource_metrics:
            about = scalars(resource.resource.attributes)
            task, pid = about.get(semconv.TASK_ID) or about.get(semconv.JOB_ID), about.get("process.pid")
            if task and isinstance(pid, int):
                self._take_process(resource, str(task), (_host_of(about), pid), now)
            elif about.get("hw.type") == "gpu":
                self._take_gpu(resource, about, now)

    def _take_process(self, resource: ResourceMetrics, task: str, id_: _ProcessId, now: float) -> None:
        metrics = [metric for scope in resource.scope_metrics for metric in scope.metrics]
        every = [point for metric in metrics for point in points(metric)]
        if every and all(map(has_no_value, every)):
            self._processes.pop(id_, None)
            return
        process = self._processes.get(id_)
        if process is None or process.task != task:
            if len(self._processes) >= _MOST_PROCESSES:
                return
            process = self._processes[id_] = _Process(task, now)
        process.at = now
        for metric in metrics:
            if metric.name == "process.memory.usage":
                process.memory = sum(value for _, value in values(metric))
            elif metric.name == "process.cpu.time" and metric.sum.data_points:
                stamp = metric.sum.data_points[0].time_unix_nano / 1e9
                _take_cpu_time(process, stamp, sum(value for _, value in values(metric)))

    def _take_gpu(self, resource: ResourceMetrics, about: Attributes, now: float) -> None:
        """The nvml receiver names the processes of a GPU in the points of `zernel.gpu.process.*`."""
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.name == semconv.GPU_PROCESS_MEMORY_USAGE:
                    for attributes, _ in values(metric):
                        pid = attributes.get("process.pid")
                        if isinstance(pid, int) and len(self._gpus) < _MOST_PROCESSES:
                            self._gpus[_host_of(about), pid][str(about.get("hw.id", ""))] = now

    def running(self, now: float, most: int) -> list[TaskUsage]:
        """The tasks, those with the most memory first, at most `most`. Forgets those that no metric names any more."""
        self._forget(now)
        by_task: defaultdict[str, list[_ProcessId]] = defaultdict(list)
        for id_, process in self._processes.items():
            by_task[process.task].append(id_)
        tasks = [self._joined(task, ids) for task, ids in by_task.items()]
        return sorted(tasks, key=lambda task: (-task.memory, task.id))[:most]

    def _joined(self, task: str, ids: Iterable[_ProcessId]) -> TaskUsage:
        processes = [self._processes[id_] for id_ in ids]
        gpus = {(id_[0], gpu) for id_ in ids for gpu in self._gpus_of(id_)}
        cpus, memory = sum(one.cpus for one in processes), sum(one.memory for one in processes)
        return TaskUsage(task, round(cpus, 3), memory, float(len(gpus)))

    def _gpus_of(self, id_: _ProcessId) -> Iterable[str]:
        """Metrics of GPUs without a host are those of this machine."""
        return self._gpus.get(id_) or self._gpus.get(("", id_[1])) or ()

    def _forget(self, now: float) -> None:
        oldest = now - self.stale_after
        self._processes = {id_: one for id_, one in self._processes.items() if one.at >= oldest}
        for id_ in list(self._gpus):
            self._gpus[id_] = {gpu: at for gpu, at in self._gpus[id_].items() if at >= oldest}
            if not self._gpus[id_]:
                del self._gpus[id_]


def _host_of(about: Attributes) -> str:
    return str(about.get("host.name", ""))


def _take_cpu_time(process: _Process, stamp: float, seconds: float) -> None:
    if process.spent and stamp > process.spent[0]:
        process.cpus = max(seconds - process.spent[1], 0.0) / (stamp - process.spent[0])
    process.spent = (stamp, seconds)
