"""Finds the places in a library to attach probes to, and the functions that should not be probed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress

from otel_zernel_receivers.ebpf.binaries.elf import ElfFile, ProbePoint, Symbol
from otel_zernel_receivers.ebpf.binaries.prologue import TrapCost, is_avoidable
from otel_zernel_receivers.ebpf.binaries.spellings import keeps_arguments
from otel_zernel_receivers.ebpf.binaries.symtab import find_local, is_stripped
from otel_zernel_receivers.ebpf.binaries.usdt import usdt_probes
from otel_zernel_receivers.ebpf.kernel.versions import RUNNING, Version
from otel_zernel_receivers.ebpf.probes.attach_modes import AttachPoint
from otel_zernel_receivers.ebpf.probes.calls import CallKind
from otel_zernel_receivers.ebpf.probes.catalogue import (
    C10,
    CUDA_DRIVER,
    CUDA_RUNTIME,
    CUPTI,
    NCCL,
    TORCH_CPU,
    TORCH_PYTHON,
    Probe,
)
from otel_zernel_receivers.ebpf.probes.marks import Mark, missing_marks
from otel_zernel_receivers.ebpf.processes.files.used_files import MappedLibrary

PROBES: dict[MappedLibrary, tuple[Probe, ...]] = {
    MappedLibrary.CUDART: CUDA_RUNTIME,
    MappedLibrary.CUDA: CUDA_DRIVER,
    MappedLibrary.NCCL: NCCL,
    MappedLibrary.TORCH_CPU: TORCH_CPU,
    MappedLibrary.TORCH_PYTHON: TORCH_PYTHON,
    MappedLibrary.C10: C10,
    MappedLibrary.CUPTI: CUPTI,
    MappedLibrary.TORCH_CUDA: (*CUDA_RUNTIME, *NCCL),
    MappedLibrary.EXECUTABLE: (*CUDA_RUNTIME, *CUDA_DRIVER, *NCCL),
}
"""The functions to probe in each kind of file. libtorch_cuda and executables may have other libraries linked in."""


@dataclass(frozen=True, slots=True)
class AttachPoints:
    """The functions of one file that are probed, and those that are not."""

    probed: tuple[AttachPoint, ...]
    single_stepped: tuple[str, ...]
    """Functions that are called often and would be single-stepped, which takes 10 us per call instead of 1 us."""
    refused: tuple[str, ...]
    """Functions that begin with an instruction on which the kernel refuses probes."""
    missing: Mapping[Mark, str]
    """The marks of PyTorch that the file lacks, each with the missing functions."""
    is_stripped: bool
    """Whether the file has no full symbol table, only exported symbols."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to report about the file."""
        return not (self.probed or self.single_stepped or self.refused or self.missing)


def find_attach_points(
    fd: int,
    probes: Sequence[Probe],
    *,
    at_any_cost: bool = False,
    kernel: Version = RUNNING,
) -> AttachPoints:
    """The places for every version of each function, without duplicates. Raises OSError or UnreadableElf.

    With `at_any_cost`, functions that would be single-stepped are probed too.
    """
    elf = ElfFile(fd)
    without_slow_ends = _without_slow_ends(find_points(fd, probes, kernel))
    refused = [
        without_slow_end for without_slow_end in without_slow_ends if without_slow_end[1].cost is TrapCost.REFUSED
    ]
    slow = [
        without_slow_end
        for without_slow_end in without_slow_ends
        if without_slow_end[0].is_hot and is_avoidable(elf.machine, without_slow_end[1].cost) and not at_any_cost
    ]
    probed = [
        without_slow_end
        for without_slow_end in without_slow_ends
        if without_slow_end not in refused and without_slow_end not in slow
    ]
    return AttachPoints(
        tuple(AttachPoint(probe, point.offset, point.semaphore) for probe, point in probed),
        single_stepped=tuple(probe.function for probe, _ in slow),
        refused=tuple(probe.function for probe, _ in refused),
        missing=missing_marks(probes, (probe for probe, _ in probed)),
        is_stripped=is_stripped(fd),
    )


def _without_slow_ends(points: list[tuple[Probe, ProbePoint]]) -> list[tuple[Probe, ProbePoint]]:
    """The places. If the end of a scope is found at a tail call, the function that it calls need not be probed."""
    has_exit = any(probe.is_at_tail_call for probe, _ in points)
    is_needed = [probe.kind is not CallKind.SCOPE_END or probe.is_at_tail_call or not has_exit for probe, _ in points]
    return list(compress(points, is_needed))


def find_points(fd: int, probes: Sequence[Probe], kernel: Version = RUNNING) -> list[tuple[Probe, ProbePoint]]:
    """The places to probe each function, with the cost of a hit there. Raises OSError or UnreadableElf."""
    points = chain(
        _points(fd, ElfFile(fd), [probe for probe in probes if not probe.provider], kernel),
        _usdt_points(fd, {probe.function: probe for probe in probes if probe.provider}),
    )
    return list({point.offset: (probe, point) for probe, point in points}.values())


def _usdt_points(fd: int, by_name: Mapping[str, Probe]) -> Iterator[tuple[Probe, ProbePoint]]:
    """The USDT probes whose arguments the kernel side can read. All records of a device make single ones needless."""
    sites = [site for provider in {probe.provider for probe in by_name.values()} for site in usdt_probes(fd, provider)]
    has_all = any(by_name[site.name].kind is CallKind.ACTIVITIES for site in sites if site.name in by_name)
    for site in sites:
        probe = by_name.get(site.name)
        if probe is None or (has_all and probe.kind is CallKind.KERNEL_RECORD):
            continue
        places = [site.arguments[number - 1] for number in probe.arguments if number <= len(site.arguments)]
        if None not in places and len(places) == len(probe.arguments):
            at_nop = ProbePoint(site.offset, TrapCost.EMULATED, site.semaphore)
            yield replace(probe, arguments=tuple(place for place in places if place is not None)), at_nop


def _points(fd: int, elf: ElfFile, probes: Sequence[Probe], kernel: Version) -> Iterator[tuple[Probe, ProbePoint]]:
    for probe, symbol in _symbols(fd, elf, probes):
        yield from ((probe, point) for point in _points_in(elf, probe, symbol, kernel))


def _points_in(elf: ElfFile, probe: Probe, symbol: Symbol, kernel: Version) -> list[ProbePoint]:
    if probe.is_at_return:
        return elf.return_points(symbol, kernel)
    if probe.is_at_tail_call:
        return elf.tail_call_point(symbol, kernel)
    return [elf.probe_point(symbol, kernel)]


def _symbols(fd: int, elf: ElfFile, probes: Sequence[Probe]) -> Iterator[tuple[Probe, Symbol]]:
    """The functions to probe: in C by name; in C++ each overload that has the arguments which the probe reads."""
    by_name = {probe.function: probe for probe in probes if not probe.first_arguments}
    for name, versions in elf.find(by_name).items():
        yield from ((by_name[name], symbol) for symbol in versions)
    spelled = {probe: probe.beginnings for probe in probes}
    exported = elf.find_beginning(chain.from_iterable(spelled.values()))
    by_probe = {
        probe: [symbol for name in exported if _is_of(names, name) for symbol in exported[name]]
        for probe, names in spelled.items()
    }
    local = {probe: spelled[probe] for probe in probes if probe.is_local and not by_probe[probe]}
    for symbol in _local_symbols(fd, elf, chain.from_iterable(local.values())) if local else ():
        by_probe[next(probe for probe, names in local.items() if _is_of(names, symbol.name))].append(symbol)
    yield from ((probe, symbol) for probe, symbols in by_probe.items() for symbol in symbols)


def _is_of(spelled: tuple[bytes, ...], name: str) -> bool:
    return name.encode().startswith(spelled) and keeps_arguments(name)


def _local_symbols(fd: int, elf: ElfFile, beginnings: Iterable[bytes]) -> Iterator[Symbol]:
    for name, address in find_local(fd, beginnings):
        offset = elf.file_offset(address, executable=True)
        if offset is not None and keeps_arguments(name):
            yield Symbol(name, None, True, address, offset, 0)
