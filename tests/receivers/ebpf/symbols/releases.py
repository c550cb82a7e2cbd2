"""The stored releases, read by the receiver's code."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TypeVar

from otel_zernel_receivers.ebpf.binaries.prologue import TrapCost
from otel_zernel_receivers.ebpf.probes.catalogue import Probe
from otel_zernel_receivers.ebpf.probes.libraries import PROBES, AttachPoints, find_attach_points, find_points
from otel_zernel_receivers.ebpf.processes.files.used_files import MappedLibrary
from tests.receivers.ebpf.symbols.kept import Kept, symbols
from tests.receivers.ebpf.symbols.rebuilt import rebuilt

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Release:
    """A library of a release, for one processor."""

    package: str
    version: str
    arch: str
    library: MappedLibrary
    symbols: tuple[Kept, ...]

    def __str__(self) -> str:
        return f"{self.package}-{self.version}-{self.arch}-{self.library}"

    @property
    def probes(self) -> tuple[Probe, ...]:
        return PROBES[self.library]

    def places(self) -> AttachPoints:
        """The places to probe, in a file with the library's symbols."""
        return self._read(find_attach_points)

    def costs(self) -> dict[str, list[TrapCost]]:
        """The cost of a hit at each place, by function, or by the returns of a function."""
        points = self._read(find_points)
        return {one.target: [point.cost for probe, point in points if probe is one] for one in self.probes}

    def return_offsets(self) -> dict[str, set[int]]:
        """The places on the returns of each function, in bytes from its first instruction."""
        points = self._read(find_points)
        begins = {probe.function: point.offset for probe, point in points if not probe.is_at_return}
        found: dict[str, set[int]] = {probe.function: set() for probe in self.probes if probe.is_at_return}
        for probe, point in points:
            if probe.is_at_return:
                found[probe.function].add(point.offset - begins[probe.function])
        return found

    def _read(self, find: Callable[[int, Sequence[Probe]], T]) -> T:
        fd = os.memfd_create("library")
        try:
            os.write(fd, rebuilt(self.symbols, self.arch))
            return find(fd, self.probes)
        finally:
            os.close(fd)


@cache
def releases(group: str) -> tuple[Release, ...]:
    """The libraries of `torch`, `cuda` or `nccl` that are probed, oldest release first."""
    return tuple(_releases(group))


def _releases(group: str) -> Iterator[Release]:
    for key, found in groupby(
        symbols(group), key=lambda symbol: (symbol.package, symbol.version, symbol.arch, symbol.library)
    ):
        package, version, arch, library = key
        kept = tuple(found)
        if (kind := MappedLibrary(library.removeprefix("lib"))) is not MappedLibrary.TORCH_CUDA:
            yield Release(package, version, arch, kind, kept)
