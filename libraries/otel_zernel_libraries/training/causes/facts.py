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
FUSED_OPTIMIZERS: Final = frozenset({"Adam", "AdamW"})
"""Those that call many operators for each parameter on a CPU, and one for all parameters with `fused=True`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What slows down the GPU of a rank, as the means of its latest readings. All parts are from 0 to 1."""

    clock: float = 1.0
    """The clock of its cores, by the highest one."""
    lowered: Mapping[str, float] = field(default_factory=dict)
    """By reason (`zernel.gpu.throttle.reason`): the part of the readings in which heat, or the supply of power, lowers
    it. A power limit is usual: a GPU that computes all the time meets it."""
    others: Mapping[int, float] = field(default_factory=dict)
    """By the pid of each other program: the part of the time in which it uses the GPU."""

    @property
    def pace(self) -> float:
        """The work that is left at the highest clock, at least: kernels that wait for memory need as long as before."""
        return max(self.clock, 1.0 - min(sum(self.lowered.values()), 1.0))

    @property
    def shared(self) -> float:
        """The part of the time in which others use it."""
        return min(sum(self.others.values()), 1.0)


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
    gpu: GpuFacts | None = None
    ranks_here: int = 1
    """The ranks of its job on its machine."""
    memory_growth: float | None = None
    """Bytes a second by which its memory grows steadily; 0 if it does not."""
    worker_growth: float | None = None
    """The same of the memory of all its workers."""
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
