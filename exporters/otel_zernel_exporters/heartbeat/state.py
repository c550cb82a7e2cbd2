"""The contents of this worker's next heartbeat, and its latest usage from the metrics of the pipeline.

Its running tasks are processes whose resource names a task or a job.
"""

import platform
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData, ResourceMetrics

from otel_zernel.batch import Batch, points
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_exporters.heartbeat.config import HeartbeatConfig
from otel_zernel_libraries.cluster.messages import Heartbeat, RunningTask, WorkerInfo
from otel_zernel_libraries.training import semconv

Attributes = Mapping[str, str | int]
_IDLE = frozenset({"idle", "iowait", "wait"})
_MOST_DEVICES = 4096
"""Filesystems and GPUs that are remembered."""
_DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA


@dataclass(frozen=True, slots=True)
class Value:
    """A value, and the monotonic time at which it came, in s."""

    value: float
    at: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """The totals that a worker registers with: CPUs, bytes, bytes, GPUs. 0 for unknown ones."""

    cpu: float = 0.0
    memory: float = 0.0
    storage: float = 0.0
    gpu: float = 0.0

    def is_about(self, other: "Capacity") -> bool:
        """Whether nobody needs to learn of the difference. The space of some filesystems changes with their content."""
        same = (self.cpu, self.memory, self.gpu) == (other.cpu, other.memory, other.gpu)
        return same and abs(self.storage - other.storage) <= 0.01 * max(self.storage, other.storage)


@dataclass(slots=True)
class LatestUsage:
    """The newest values. All shares are from 0 to 1; None if no metric has said them lately."""

    scope: Literal["host", "cgroup"]
    storage_mount: str
    stale_after: float
    """Seconds."""
    host_name: str = ""
    _cpu: Value | None = None
    _modes: dict[str, float] = field(default_factory=dict)
    """CPU time (s) by mode, at the last batch."""
    _values: dict[str, Value] = field(default_factory=dict)
    """Plain values by name: `memory.used`, `cpu.count`."""
    _storage: dict[tuple[str, str], Value] = field(default_factory=dict)
    """Bytes by mount point and state."""
    _gpus: dict[str, Value] = field(default_factory=dict)
    """Utilization by GPU."""

    def take(self, metrics: MetricsData, now: float) -> None:
        """Reads the metrics of a batch. `now` is the monotonic time in s."""
        for resource in metrics.resource_metrics:
            about = scalars(resource.resource.attributes)
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self._take(metric, about, now)

    def _take(self, metric: Metric, about: Attributes, now: float) -> None:
        match metric.name:
            case "system.cpu.time" if self.scope == "host":
                self.host_name = str(about.get("host.name", self.host_name))
                self._take_cpu_time(metric, now)
            case semconv.CGROUP_CPU_TIME if self.scope == "cgroup":
                self.host_name = str(about.get("host.name", self.host_name))
                self._take_cgroup_time(metric, now)
            case name if name in _PLAIN:
                for _, value in values(metric):
                    self._values[name] = Value(value, now)
            case "system.memory.usage":
                for attributes, value in values(metric):
                    state = attributes.get("system.memory.state", attributes.get("state", ""))
                    self._values[f"{metric.name} {state}"] = Value(value, now)
            case "system.filesystem.usage":
                self._take_storage(metric, now)
            case "hw.gpu.utilization":
                self._take_gpus(metric, about, now)

    def _take_cpu_time(self, metric: Metric, now: float) -> None:
        """The share of the time since the last batch in which the CPUs did not idle."""
        modes: dict[str, float] = {}
        for attributes, seconds in values(metric):
            mode = str(attributes.get("cpu.mode", attributes.get("state", "")))
            modes[mode] = modes.get(mode, 0.0) + seconds
        last = {} if metric.sum.aggregation_temporality == _DELTA else self._modes
        if last or metric.sum.aggregation_temporality == _DELTA:
            spent = {mode: max(seconds - last.get(mode, 0.0), 0.0) for mode, seconds in modes.items()}
            if total := sum(spent.values()):
                busy = sum(seconds for mode, seconds in spent.items() if mode not in _IDLE)
                self._cpu = Value(busy / total, now)
        self._modes = modes

    def _take_cgroup_time(self, metric: Metric, now: float) -> None:
        """The CPU time since the last batch, as a share of the time that the limit allows."""
        if not metric.sum.data_points:
            return
        stamp = metric.sum.data_points[0].time_unix_nano / 1e9
        seconds = sum(value for _, value in values(metric))
        limit = self._recent(semconv.CGROUP_CPU_LIMIT, now) or self._recent("system.cpu.logical.count", now)
        elapsed = stamp - self._modes.get("at", stamp)
        if limit and elapsed > 0:
            spent = max(seconds - self._modes["spent"], 0.0)
            self._cpu = Value(min(spent / elapsed / limit, 1.0), now)
        self._modes = {"at": stamp, "spent": seconds}

    def _take_storage(self, metric: Metric, now: float) -> None:
        for attributes, size in values(metric):
            mount = str(attributes.get("system.filesystem.mountpoint", attributes.get("mountpoint", "")))
            state = str(attributes.get("system.filesystem.state", attributes.get("state", "")))
            if len(self._storage) < _MOST_DEVICES and self.storage_mount in ("", mount):
                self._storage[mount, state] = Value(size, now)

    def _take_gpus(self, metric: Metric, about: Attributes, now: float) -> None:
        for attributes, share in values(metric):
            if attributes.get("hw.gpu.task", "general") == "general":
                gpu = str(attributes.get("hw.id", about.get("hw.id", "")))
                if gpu in self._gpus or len(self._gpus) < _MOST_DEVICES:
                    self._gpus[gpu] = Value(share, now)

    def _recent(self, name: str, now: float) -> float | None:
        value = self._values.get(name)
        return value.value if value and now - value.at <= self.stale_after else None

    def cpu(self, now: float) -> float | None:
        """The share of the CPU time that was used."""
        return self._cpu.value if self._cpu and now - self._cpu.at <= self.stale_after else None

    def memory(self, now: float) -> float | None:
        """The share of the memory that is used."""
        if self.scope == "cgroup":
            used, limit = (
                self._recent(name, now) for name in (semconv.CGROUP_MEMORY_USAGE, semconv.CGROUP_MEMORY_LIMIT)
            )
            limit = limit or self._recent("system.memory.limit", now)
        else:
            used, limit = self._recent("system.memory.usage used", now), self._memory_total(now)
        return min(used / limit, 1.0) if used is not None and limit else None

    def _memory_total(self, now: float) -> float | None:
        """The limit; without one, the sum of all states, as in hostmetrics."""
        if limit := self._recent("system.memory.limit", now):
            return limit
        states = [name for name in self._values if name.startswith("system.memory.usage ")]
        return sum(self._recent(name, now) or 0.0 for name in states) or None

    def storage(self, now: float) -> float | None:
        """The used share of the space that users can have."""
        used, free = self._space("used", now), self._space("free", now)
        return used / (used + free) if used + free else None

    def _space(self, state: str, now: float) -> float:
        return sum(
            entry.value
            for (_, of_state), entry in self._storage.items()
            if of_state == state and now - entry.at <= self.stale_after
        )

    def gpu(self, now: float) -> float | None:
        """The mean utilization of all GPUs."""
        recent = [gpu.value for gpu in self._gpus.values() if now - gpu.at <= self.stale_after]
        return sum(recent) / len(recent) if recent else None

    def capacity(self, now: float) -> Capacity:
        """The totals."""
        cgroup = self.scope == "cgroup"
        cpus = (self._recent(semconv.CGROUP_CPU_LIMIT, now) if cgroup else None) or self._recent(
            "system.cpu.logical.count", now
        )
        memory = (self._recent(semconv.CGROUP_MEMORY_LIMIT, now) if cgroup else None) or self._memory_total(now)
        gpus = sum(now - gpu.at <= self.stale_after for gpu in self._gpus.values())
        return Capacity(cpus or 0.0, memory or 0.0, self._space("used", now) + self._space("free", now), float(gpus))

    def forget(self, now: float) -> None:
        """Drops devices that no metric has named lately."""
        oldest = now - self.stale_after
        self._storage = {key: entry for key, entry in self._storage.items() if entry.at >= oldest}
        self._gpus = {key: gpu for key, gpu in self._gpus.items() if gpu.at >= oldest}


_PLAIN = frozenset(
    {
        *("system.cpu.logical.count", "system.memory.limit", semconv.CGROUP_CPU_LIMIT),
        *(semconv.CGROUP_MEMORY_USAGE, semconv.CGROUP_MEMORY_LIMIT),
    }
)
"""Metrics with one point, whose value is taken as it is."""


def values(metric: Metric) -> Iterator[tuple[Attributes, float]]:
    """The attributes and the value of each number point. Ends of series are left out."""
    for point in points(metric):
        if not has_no_value(point):
            value = point.as_int if point.HasField("as_int") else point.as_double
            yield scalars(point.attributes), float(value)


def scalars(attributes: Any) -> dict[str, str | int]:
    """The attributes that are texts or integers."""
    values: dict[str, str | int] = {}
    for pair in attributes:
        kind = pair.value.WhichOneof("value")
        if kind in ("string_value", "int_value"):
            values[pair.key] = getattr(pair.value, kind)
    return values


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
        cpus, memory = sum(process.cpus for process in processes), sum(process.memory for process in processes)
        return TaskUsage(task, round(cpus, 3), memory, float(len(gpus)))

    def _gpus_of(self, id_: _ProcessId) -> Iterable[str]:
        """Metrics of GPUs without a host are those of this machine."""
        return self._gpus.get(id_) or self._gpus.get(("", id_[1])) or ()

    def _forget(self, now: float) -> None:
        oldest = now - self.stale_after
        self._processes = {id_: process for id_, process in self._processes.items() if process.at >= oldest}
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


_PERCENT = 100.0


class WorkerState:
    """The latest state, as messages of `cluster.MasterWorker`. Usages are per cent; unknown ones are 0."""

    def __init__(self, config: HeartbeatConfig) -> None:
        self._config = config
        self._usage = LatestUsage(config.scope, config.storage_mount, config.stale_after)
        self._tasks = RunningTasks(config.stale_after)
        self._introduced = Capacity()

    def take(self, batch: Batch, now: float) -> None:
        """Reads the metrics of a batch. Raises `DecodeError` if they are not valid."""
        metrics = batch.metrics
        self._usage.take(metrics, now)
        self._tasks.take(metrics, now)

    @property
    def worker_id(self) -> str:
        return self._config.worker_id or self._usage.host_name or platform.node()

    def is_known(self, now: float) -> bool:
        """Whether the usage of CPU and memory is known."""
        return None not in (self._usage.cpu(now), self._usage.memory(now))

    def heartbeat(self, now: float) -> Any:
        """A `Heartbeat`."""
        usage = self._usage
        usage.forget(now)
        shares = (usage.cpu(now), usage.memory(now), usage.storage(now), usage.gpu(now))
        cpu, memory, storage, gpu = (round((share or 0.0) * _PERCENT, 3) for share in shares)
        tasks = [
            RunningTask(
                task_id=task.id,
                cpu_allocated=task.cpus,
                memory_allocated=task.memory,
                gpu_allocated=task.gpus,
                status=RUNNING,
            )
            for task in self._tasks.running(now, self._config.max_tasks)
        ]
        return Heartbeat(
            worker_id=self.worker_id,
            cpu_usage=cpu,
            memory_usage=memory,
            storage_usage=storage,
            gpu_usage=gpu,
            running_tasks=tasks,
        )

    def is_introduced(self, now: float) -> bool:
        """Whether the last introduction still holds: a total may become known later, or change."""
        return self._usage.capacity(now).is_about(self._introduced)

    def introduction(self, now: float) -> Any:
        """A `WorkerInfo`. May block: it looks up the own address."""
        self._introduced = capacity = self._usage.capacity(now)
        return WorkerInfo(
            worker_id=self.worker_id,
            worker_ip=self._config.worker_ip or _own_address(self._config.master.host_and_port),
            total_cpu=capacity.cpu,
            total_memory=capacity.memory,
            total_storage=capacity.storage,
            total_gpu=capacity.gpu,
        )


def _own_address(master: tuple[str, int] | None) -> str:
    """The address from which packets to the master are sent; empty if it is not known. Sends nothing."""
    if master is None:
        return ""
    try:
        family, kind, _, _, address = socket.getaddrinfo(*master, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return ""
