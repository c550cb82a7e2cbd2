"""The GPUs of one host, and the processes that use them."""

from collections.abc import Iterable
from typing import NamedTuple

from otel_zernel_processors.phases.intake.inputs import InputPoint
from otel_zernel_processors.phases.results.energy import EnergyHistory, GpuEnergy, GpuUsage

_GPUS = 1024
"""GPUs of one host; points of further GPUs are ignored."""


class GpuUser(NamedTuple):
    """A process that uses a GPU."""

    gpu: str
    """The index of the GPU; empty if unknown."""
    history: EnergyHistory
    usage: GpuUsage
    """The process's share is added to this."""


class HostGpus:
    """The GPUs of one host by their index."""

    def __init__(self) -> None:
        self._gpus: dict[str, GpuEnergy] = {}

    def read(self, point: InputPoint) -> None:
        """Adds a point of a GPU. A point without an index is ignored."""
        if point.gpu in self._gpus or (point.gpu and len(self._gpus) < _GPUS):
            self._gpus.setdefault(point.gpu, GpuEnergy()).read(point)

    def utilization(self, index: str, now: int) -> float:
        """The utilization of a GPU at `now` (ns), 0 to 1; 0 if unknown."""
        gpu = self._gpus.get(self._known(index))
        return (gpu.utilization.at(now) if gpu else None) or 0.0

    def share_out(self, users: Iterable[GpuUser], at_latest: int) -> None:
        """Divides what each GPU used among its users; see `GpuEnergy.share_out`."""
        of_gpu: dict[str, list[tuple[EnergyHistory, GpuUsage]]] = {}
        for user in users:
            of_gpu.setdefault(self._known(user.gpu), []).append((user.history, user.usage))
        for index, gpu in self._gpus.items():
            gpu.share_out(of_gpu.get(index, []), at_latest)

    def _known(self, index: str) -> str:
        """The index itself. For an unknown (empty) one: the index of the host's only GPU, if it has one."""
        return next(iter(self._gpus)) if len(self._gpus) == 1 and not index else index
