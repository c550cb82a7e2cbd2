"""What is known about a process besides its steps: its data loader, its optimizer, its CPUs and its memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

BUSY: Final = 0.7
"""Workers that use so much of a CPU each are the limit."""
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
    takers: Mapping[str, float] = field(default_factory=dict)
    """By the name of a program: for how long (s) it had the CPU that a thread waited for."""
