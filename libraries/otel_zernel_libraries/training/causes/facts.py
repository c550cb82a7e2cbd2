"""What is known about a process besides its steps: its data loader, its optimizer, its CPUs and its memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_zernel_libraries.training.cpu_takers import CpuTaker
from otel_zernel_libraries.training.ledger import Position

BUSY: Final = 0.7
"""Workers that use this part of the CPUs that they can have are the limit."""
UNPACKING: Final = 1e-3
"""Seconds in which a training thread takes a batch from a worker."""
PASSES: Final = frozenset(
    {
        *(Position.FORWARD, Position.BACKWARD, Position.CLIP, Position.OPTIMIZER, Position.ZERO_GRAD),
        *(Position.EVALUATION, Position.INFERENCE),
    }
)
TORCH_OPTIMIZERS: Final = frozenset(
    {
        *("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "LBFGS", "Muon", "NAdam", "RAdam"),
        *("RMSprop", "Rprop", "SGD", "SparseAdam"),
    }
)
"""The optimizers of PyTorch: their Python is part of their arithmetic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts about one rank. None: not known."""

    optimizer: str = ""
    """The class of its optimizer."""
    workers: int | None = None
    """The worker processes of its DataLoaders."""
    worker_cpu: float | None = None
    """The mean number of CPUs that all of them use."""
    worker_io: float | None = None
    """The mean number of them that wait for storage."""
    cpus: float | None = None
    """CPUs that the process may use, by affinity and quota."""
    has_loader: bool = False
    """Whether it has a DataLoader of PyTorch."""
    has_device: bool = False
    """Whether it launches kernels on a GPU."""
    uses_nccl: bool = False
    memory_growth: float | None = None
    """Bytes a second by which its memory grows steadily; 0 if it does not."""
    memory_left: float | None = None
    """Bytes that the limits of its control groups leave."""
    runnable: float | None = None
    """The mean number of its threads that run, or wait for a CPU."""
    takers: Mapping[CpuTaker, float] = field(default_factory=dict)
    """For how long (s) each had a CPU that a thread of the process waited for."""

    @property
    def are_workers_busy(self) -> bool | None:
        """Whether its workers use most of the CPUs that they can have beside the training thread."""
        if not self.workers or self.worker_cpu is None:
            return None
        return self.worker_cpu >= BUSY * min(self.workers, max((self.cpus or 2.0) - 1.0, 1.0))

    @property
    def is_crowded(self) -> bool:
        """Whether more of its threads want to run than it has CPUs."""
        return bool(self.runnable and self.cpus and self.runnable > self.cpus + 0.5)
