"""Which files on this machine have functions to probe, and where in them."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from otel_zernel_receivers.ebpf.attaching import Place
from otel_zernel_receivers.ebpf.elf import ElfFile, Symbol, UnreadableElf
from otel_zernel_receivers.ebpf.probes import CUDA_DRIVER, CUDA_RUNTIME, NCCL, TORCH_CPU, TORCH_PYTHON, Probe
from otel_zernel_receivers.ebpf.symtab import find_local

FileKey = tuple[int, int]
"""Device and inode."""

_LIBRARIES: dict[str, tuple[Probe, ...]] = {
    "libcudart.so": CUDA_RUNTIME,
    "libcuda.so": CUDA_DRIVER,
    "libnccl.so": NCCL,
    "libtorch_cpu.so": TORCH_CPU,
    "libtorch_python.so": TORCH_PYTHON,
}
"""Probes by what the library's name begins with."""


@dataclass(frozen=True, slots=True)
class Library:
    """A file with functions to probe."""

    key: FileKey
    path: str
    """As the collector can open it, whatever mount namespace the process lives in."""
    places: tuple[Place, ...]


def find_libraries(skip: Container[FileKey]) -> Iterator[Library]:
    """The libraries that some process has mapped now, each file once; none of those in `skip`."""
    seen: set[FileKey] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        for path, probes in _mapped(maps):
            try:
                status = Path(path).stat()
                key = status.st_dev, status.st_ino
                if key not in seen and key not in skip:
                    seen.add(key)
                    yield Library(key, path, find_places(path, probes))
            except (OSError, UnreadableElf):
                continue


def find_places(path: str, probes: Sequence[Probe]) -> tuple[Place, ...]:
    """Where the functions are in the file: every version of each, but no place twice."""
    by_name = {probe.function: probe for probe in probes}
    local = [probe for probe in probes if probe.is_local]
    with Path(path).open("rb") as file:
        elf = ElfFile(file.fileno())
        symbols = [symbol for versions in elf.find(by_name).values() for symbol in versions]
        symbols += [found for probe in local if (found := _local_symbol(file.fileno(), elf, probe.function))]
        offsets = {elf.probe_point(symbol).offset: by_name[symbol.name] for symbol in symbols}
    return tuple(Place(probe, offset) for offset, probe in offsets.items())


def _local_symbol(fd: int, elf: ElfFile, name: str) -> Symbol | None:
    address = find_local(fd, name)
    offset = elf.file_offset(address, executable=True) if address else None
    return Symbol(name, None, True, address or 0, offset, 0) if offset is not None else None


def _mapped(maps: Path) -> Iterator[tuple[str, tuple[Probe, ...]]]:
    try:
        lines = maps.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for path in {line.split(None, 5)[5] for line in lines if len(line.split(None, 5)) > 5}:
        for prefix, probes in _LIBRARIES.items():
            if Path(path).name.startswith(prefix):
                yield f"{maps.parent}/root{path}", probes
