"""What this worker says in its next heartbeat."""

import platform
import socket
from typing import Any

from otel_zernel.batch import Batch
from otel_zernel_exporters.heartbeat.config import HeartbeatConfig
from otel_zernel_exporters.heartbeat.tasks import RUNNING, RunningTasks
from otel_zernel_exporters.heartbeat.usage import Capacity, LatestUsage
from otel_zernel_libraries.cluster.messages import Heartbeat, RunningTask, WorkerInfo

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
