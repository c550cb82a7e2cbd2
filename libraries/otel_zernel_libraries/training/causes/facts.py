"""What is known about a process besides its steps: its data loader, its optimizer, its CPUs and its memory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts about one rank. None: not known."""

    optimizer: str = ""
    """The class of its optimizer."""
    workers: int = 0
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
