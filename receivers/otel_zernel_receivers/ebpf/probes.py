"""Which functions of which libraries are probed, by which program, and what their calls count as.

Signatures are those of cuda_runtime_api.h, cuda.h and nccl.h.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from otel_zernel_receivers.ebpf.layout import OPERATIONS, PHASES


class Operation(IntEnum):
    """What a call counts as; part of a series' key."""

    CALIBRATION = 0
    RUNTIME_LAUNCH = 1
    DRIVER_LAUNCH = 2
    GRAPH_LAUNCH = 3


assert len(Operation) <= OPERATIONS  # noqa: S101  # a mistake in this file


class Phase(IntEnum):
    """What a process is doing; part of a series' key."""

    UNKNOWN = 0


assert len(Phase) <= PHASES  # noqa: S101  # a mistake in this file


class Flag(IntFlag):
    """What the BPF side has to know of a function, beyond its operation and arguments (bpf/call.bpf.h)."""

    NONE = 0
    RUNTIME = 1 << 24
    DRIVER = 1 << 25


@dataclass(frozen=True, slots=True)
class Probe:
    """One function, and how it is probed."""

    function: str
    operation: Operation
    flags: Flag = Flag.NONE
    program: str = "call"
    arguments: tuple[int, ...] = ()
    """Positions, from 1, of the arguments that the program reads."""

    @property
    def cookie(self) -> int:
        """All of this in one number, which the kernel hands to the program with each hit."""
        cookie = self.operation | self.flags
        for nth, position in enumerate(self.arguments):
            cookie |= position << (8 + 4 * nth)
        return cookie


def _runtime(operation: Operation, *functions: str) -> tuple[Probe, ...]:
    return tuple(Probe(function, operation, Flag.RUNTIME) for function in functions)


def _driver(operation: Operation, *functions: str) -> tuple[Probe, ...]:
    return tuple(Probe(function, operation, Flag.DRIVER) for function in functions)


CUDA_RUNTIME = _runtime(Operation.RUNTIME_LAUNCH, "cudaLaunchKernel", "cudaLaunchKernelExC")

CUDA_DRIVER = _driver(Operation.DRIVER_LAUNCH, "cuLaunchKernel", "cuLaunchKernelEx")
