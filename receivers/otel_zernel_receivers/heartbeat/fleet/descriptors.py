"""The metrics of a worker. Names are those of the semantic conventions, where these have one."""

from dataclasses import dataclass
from typing import Final

from otel_zernel.otlp.points import Descriptor


@dataclass(frozen=True, slots=True)
class WorkerMetric:
    """A metric, the attributes of its only series, and when it appears."""

    descriptor: Descriptor
    attributes: tuple[tuple[str, str], ...] = ()
    when: str = "always"


_LIVES: Final = "while the worker is active"
_KNOWN: Final = "if the worker has registered a value above 0"

USAGES: Final = {
    "cpu": WorkerMetric(
        Descriptor("system.cpu.utilization", "1", description="The share of all CPUs that is in use."), when=_LIVES
    ),
    "memory": WorkerMetric(
        Descriptor("system.memory.utilization", "1", description="The share of the memory that is in use."),
        (("system.memory.state", "used"),),
        _LIVES,
    ),
    "storage": WorkerMetric(
        Descriptor("system.filesystem.utilization", "1", description="The share of the storage that is in use."),
        (("system.filesystem.state", "used"),),
        _LIVES,
    ),
    "gpu": WorkerMetric(
        Descriptor("zernel.worker.gpu.utilization", "1", description="The mean utilization of the worker's GPUs."),
        when=f"{_LIVES}, unless it has registered without GPUs",
    ),
    "tasks": WorkerMetric(
        Descriptor("zernel.worker.running_tasks", "{task}", description="Tasks that run on the worker."), when=_LIVES
    ),
}
"""One point for each heartbeat."""
ACTIVE: Final = WorkerMetric(
    Descriptor("zernel.worker.active", "1", description="1 while heartbeats arrive, 0 after `inactive_after`.")
)
LAST_SEEN: Final = WorkerMetric(
    Descriptor("zernel.worker.last_seen", "s", description="The time of the last heartbeat, in s since 1970.")
)
CAPACITIES: Final = {
    "total_cpu": WorkerMetric(
        Descriptor("system.cpu.logical.count", "{cpu}", "up_down", "Logical CPUs of the worker."), when=_KNOWN
    ),
    "total_memory": WorkerMetric(
        Descriptor("system.memory.limit", "By", "up_down", "Memory of the worker."), when=_KNOWN
    ),
    "total_storage": WorkerMetric(
        Descriptor("zernel.worker.storage.limit", "By", "up_down", "Storage of the worker."), when=_KNOWN
    ),
    "total_gpu": WorkerMetric(
        Descriptor("zernel.worker.gpu.count", "{gpu}", "up_down", "GPUs of the worker."), when=_KNOWN
    ),
}
"""By the fields of `WorkerInfo`."""
METRICS: Final = (*USAGES.values(), ACTIVE, LAST_SEEN, *CAPACITIES.values())
