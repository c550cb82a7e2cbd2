"""Phases by signals: the seven rules for processes that have no PyTorch scopes, and the vote that steadies them.

The rules are those of a scheduler's task states. The first that matches decides, and every comparison is strict.
"""

from dataclasses import dataclass

from otel_zernel_processors.phases.config import SignalsConfig, ns


@dataclass(frozen=True, slots=True)
class Signals:
    """What the kernel and the GPU say of a process, for one evaluation."""

    is_ml: bool = False
    """Whether it uses CUDA or NCCL at all."""
    nccl_active: bool = False
    futex_waits: int = 0
    """Since the last evaluation."""
    io_wait: float = 0.0
    """Share of the time, 0 to 1."""
    gpu: float = 0.0
    """Use of the process's own GPU, 0 to 1."""
    cpu_burst_ns: int = 0
    """The last stretch of uninterrupted CPU time; 0 for none."""
    gpu_synced: bool = False
    """Whether a GPU sync was ever seen."""


def phase_by_rules(seen: Signals, limits: SignalsConfig) -> str:
    """The phase by the seven rules."""
    if not seen.is_ml:
        return "unknown"
    if limits.collectives and seen.nccl_active and seen.futex_waits > 0:
        return "nccl_collective"
    if seen.io_wait > limits.data_loading_io_wait and seen.gpu < limits.data_loading_gpu:
        return "data_loading"
    if seen.gpu > limits.compute_gpu and seen.cpu_burst_ns == 0:
        return "gpu_compute"
    if 0 < seen.cpu_burst_ns < ns(limits.optimizer_burst) and seen.gpu_synced:
        return "optimizer_step"
    if seen.io_wait > limits.mixed_io_wait and limits.data_loading_gpu < seen.gpu < limits.compute_gpu:
        return "data_loading"
    return "unknown"


class Vote:
    """Keeps to a phase until another has had `stability` votes in a row."""

    def __init__(self, stability: int, phase: str = "unknown") -> None:
        self.phase = phase
        self._stability = stability
        self._candidate = phase
        self._votes = 0

    def cast(self, phase: str) -> str:
        """The phase that holds after this vote."""
        if phase == self.phase:
            self._candidate, self._votes = phase, 0
            return self.phase
        self._votes = self._votes + 1 if phase == self._candidate else 1
        self._candidate = phase
        if self._votes >= self._stability:
            self.phase, self._votes = phase, 0
        return self.phase
