"""Where in a library the functions to probe are, and which of them are better left alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from otel_zernel_receivers.ebpf.attaching import Place
from otel_zernel_receivers.ebpf.elf import ElfFile, Symbol
from otel_zernel_receivers.ebpf.kernels import RUNNING, Version
from otel_zernel_receivers.ebpf.probes import CUDA_DRIVER, CUDA_RUNTIME, NCCL, TORCH_CPU, TORCH_PYTHON, Probe
from otel_zernel_receivers.ebpf.processes import Library
from otel_zernel_receivers.ebpf.prologue import Cost, is_avoidable
from otel_zernel_receivers.ebpf.symtab import find_local

PROBES: dict[Library, tuple[Probe, ...]] = {
    Library.CUDART: CUDA_RUNTIME,
    Library.CUDA: CUDA_DRIVER,
    Library.NCCL: NCCL,
    Library.TORCH_CPU: TORCH_CPU,
    Library.TORCH_PYTHON: TORCH_PYTHON,
    Library.EXECUTABLE: (*CUDA_RUNTIME, *CUDA_DRIVER, *NCCL),
}
"""What is probed in each kind of file."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where a file's functions are."""

    probed: tuple[Place, ...]
    too_dear: tuple[str, ...]
    """Functions that are called often, and at which each hit would be single-stepped: 10 us in place of 1."""
    refused: tuple[str, ...] = ()
    """Functions that begin with an instruction at which the kernel takes no probe."""


def find_places(
    fd: int,
    probes: Sequence[Probe],
    *,
    at_any_cost: bool = False,
    kernel: Version = RUNNING,
) -> Places:
    """Every version of each function, but no place twice. Raises OSError or UnreadableElf."""
    by_name = {probe.function: probe for probe in probes}
    elf = ElfFile(fd)
    symbols = [symbol for versions in elf.find(by_name).values() for symbol in versions]
    symbols += [found for probe in probes if probe.is_local and (found := _local_symbol(fd, elf, probe.function))]
    probed: dict[int, Place] = {}
    too_dear: list[str] = []
    refused: list[str] = []
    for symbol in symbols:
        probe, point = by_name[symbol.name], elf.probe_point(symbol, kernel)
        if point.cost is Cost.REFUSED:
            refused.append(symbol.name)
        elif probe.is_hot and is_avoidable(elf.machine, point.cost) and not at_any_cost:
            too_dear.append(symbol.name)
        else:
            probed[point.offset] = Place(probe, point.offset)
    return Places(tuple(probed.values()), tuple(too_dear), tuple(refused))


def _local_symbol(fd: int, elf: ElfFile, name: str) -> Symbol | None:
    address = find_local(fd, name)
    offset = elf.file_offset(address, executable=True) if address else None
    return Symbol(name, None, True, address or 0, offset, 0) if offset is not None else None
