"""Which files on this machine have functions to probe, and where in them."""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from otel_zernel_receivers.ebpf.attaching import Place
from otel_zernel_receivers.ebpf.elf import UnreadableElf, open_elf
from otel_zernel_receivers.ebpf.probes import CUDA_DRIVER, CUDA_RUNTIME, Probe

FileKey = tuple[int, int]
"""Device and inode."""

_LIBRARIES: dict[str, tuple[Probe, ...]] = {"libcudart.so": CUDA_RUNTIME, "libcuda.so": CUDA_DRIVER}
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


def find_places(path: str, probes: tuple[Probe, ...]) -> tuple[Place, ...]:
    """Where the functions are in the file: every version of each, but no place twice."""
    by_name = {probe.function: probe for probe in probes}
    with open_elf(path) as elf:
        offsets = {
            elf.probe_point(symbol).offset: by_name[name]
            for name, symbols in elf.find(by_name).items()
            for symbol in symbols
        }
    return tuple(Place(probe, offset) for offset, probe in offsets.items())


def _mapped(maps: Path) -> Iterator[tuple[str, tuple[Probe, ...]]]:
    try:
        lines = maps.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for path in {line.split(None, 5)[5] for line in lines if len(line.split(None, 5)) > 5}:
        for prefix, probes in _LIBRARIES.items():
            if Path(path).name.startswith(prefix):
                yield f"{maps.parent}/root{path}", probes
