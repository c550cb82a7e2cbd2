"""Where in a library the functions to probe are, and which of them are better left alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from otel_zernel_receivers.ebpf.attaching import Place
from otel_zernel_receivers.ebpf.elf import ElfFile, Symbol
from otel_zernel_receivers.ebpf.kernels import RUNNING, Version
from otel_zernel_receivers.ebpf.probes import CUDA_DRIVER, CUDA_RUNTIME, NCCL, TORCH_CPU, TORCH_PYTHON, Probe
from otel_zernel_receivers.ebpf.processes import Library
from otel_zernel_receivers.ebpf.prologue import Cost, is_avoidable
from otel_zernel_receivers.ebpf.spellings import keeps_arguments
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
    elf = ElfFile(fd)
    probed: dict[int, Place] = {}
    too_dear: list[str] = []
    refused: list[str] = []
    for probe, symbol in _symbols(fd, elf, probes):
        point = elf.probe_point(symbol, kernel)
        if point.cost is Cost.REFUSED:
            refused.append(probe.function)
        elif probe.is_hot and is_avoidable(elf.machine, point.cost) and not at_any_cost:
            too_dear.append(probe.function)
        else:
            probed[point.offset] = Place(probe, point.offset)
    return Places(tuple(probed.values()), tuple(too_dear), tuple(refused))


def _symbols(fd: int, elf: ElfFile, probes: Sequence[Probe]) -> Iterator[tuple[Probe, Symbol]]:
    """The functions to probe. One of C is known by its name; of C++, each that takes the arguments a probe reads."""
    by_name = {probe.function: probe for probe in probes if not probe.takes}
    for name, versions in elf.find(by_name).items():
        yield from ((by_name[name], symbol) for symbol in versions)
    exported = elf.find_beginning(beginning for probe in probes for beginning in probe.beginnings)
    for probe in probes:
        found = [symbol for name, versions in exported.items() if _is_of(probe, name) for symbol in versions]
        if not found and probe.is_local:
            found = list(_local_symbols(fd, elf, probe))
        yield from ((probe, symbol) for symbol in found)


def _is_of(probe: Probe, name: str) -> bool:
    return name.encode().startswith(probe.beginnings) and keeps_arguments(name)


def _local_symbols(fd: int, elf: ElfFile, probe: Probe) -> Iterator[Symbol]:
    for name, address in find_local(fd, probe.beginnings):
        offset = elf.file_offset(address, executable=True)
        if offset is not None and keeps_arguments(name):
            yield Symbol(name, None, True, address, offset, 0)
