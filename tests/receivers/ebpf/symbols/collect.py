"""Collects the symbols for the tests and for docs/versions.md from the wheels of the package index: `make symbols`.

    python -m tests.receivers.ebpf.symbols.collect [torch | cuda | nccl]...

For each library it stores the names of probed functions, and names with the same beginning, with their addresses and
first instructions. A function with probes on its returns is stored whole, and a separate table has the returns that
`objdump` finds. Nothing else of a wheel is stored.

The symbols are read with binutils (`nm`, `readelf`; for arm64 Debian's binutils-aarch64-linux-gnu), so that tests
compare the receiver's code with an independent one. A run takes half an hour and needs 3 GB of disk.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from otel_zernel_receivers.ebpf.binaries.spellings import beginnings
from otel_zernel_receivers.ebpf.probes.catalogue import C10, CUDA_RUNTIME, NCCL, TORCH_CPU, TORCH_PYTHON, Probe
from tests.receivers.ebpf.symbols.kept import CODE, FOLDER, Build, Kept, write_builds, write_returns, write_symbols
from tests.receivers.ebpf.symbols.returns import is_whole, returns_of_all, whole_functions
from tests.receivers.ebpf.symbols.wheels import PLATFORMS, newest_of_each_minor, opened, url_of

PACKAGES = {
    "torch": [("torch", "2.1")],
    "cuda": [
        ("nvidia-cuda-runtime-cu11", "11.8"),
        ("nvidia-cuda-runtime-cu12", "12.0"),
        ("nvidia-cuda-runtime", "13.0"),
    ],
    "nccl": [("nvidia-nccl-cu11", "2.18"), ("nvidia-nccl-cu12", "2.18"), ("nvidia-nccl-cu13", "2.28")],
}
LIBRARIES: dict[str, tuple[Probe, ...]] = {
    "libtorch_cpu": TORCH_CPU,
    "libtorch_python": TORCH_PYTHON,
    "libc10": C10,
    "libtorch_cuda": NCCL,
    "libcudart": CUDA_RUNTIME,
    "libnccl": NCCL,
}


class _Symbol(NamedTuple):
    table: str
    name: str
    address: int
    size: int
    """Bytes of its code, from the symbol table."""


def collect(group: str) -> None:
    """Writes the files of one group of packages."""
    builds: list[Build] = []
    kept: list[Kept] = []
    for package, since in PACKAGES[group]:
        for version in newest_of_each_minor(package, since):
            for arch in PLATFORMS:
                if url := url_of(package, version, arch):
                    print(package, version, arch, flush=True)  # noqa: T201
                    with opened(url) as wheel:
                        builds.append(_build(package, version, arch, wheel))
                        kept += _kept_of(package, version, arch, wheel)
    write_builds(FOLDER / f"{group}.builds.tsv", builds)
    write_symbols(FOLDER / f"{group}.tsv", kept)
    if group == "torch":
        write_returns(FOLDER / "torch.returns.tsv", returns_of_all(whole_functions(kept)))


def _build(package: str, version: str, arch: str, wheel: zipfile.ZipFile) -> Build:
    """The wheel of PyTorch, with the versions of CUDA and NCCL that it requires."""
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    needs = wheel.read(metadata).decode()
    toolkit = r"(?:nvidia-cuda-runtime(?:-cu\d+)?|cuda-toolkit\[.*?\])"
    cuda = re.search(rf"^Requires-Dist: {toolkit} ?\(?[=~]=([\d.]+)", needs, re.MULTILINE)
    nccl = re.search(r"^Requires-Dist: nvidia-nccl-cu\d+ ?\(?==([\d.]+)", needs, re.MULTILINE)
    has_cuda = any("libtorch_cuda" in name for name in wheel.namelist())
    return Build(package, version, arch, cuda[1] if cuda else "", nccl[1] if nccl else "", has_cuda)


def _kept_of(package: str, version: str, arch: str, wheel: zipfile.ZipFile) -> Iterator[Kept]:
    for member in wheel.namelist():
        library = Path(member).name.split(".so")[0]
        if library in LIBRARIES and ".so" in Path(member).name:
            with tempfile.NamedTemporaryFile() as file:
                with wheel.open(member) as content:
                    shutil.copyfileobj(content, file, 1 << 20)
                file.flush()
                for symbol, code in _read(Path(file.name), LIBRARIES[library]):
                    yield Kept(package, version, arch, library, symbol.table, symbol.name, symbol.address, code.hex())


def _read(path: Path, probes: Iterable[Probe]) -> Iterator[tuple[_Symbol, bytes]]:
    probes = tuple(probes)
    generated = {probe for probe in probes if probe.function.startswith("at::_ops::")}  # exported by every release
    wanted = {"exported": _pattern(probes), "full": _pattern(probe for probe in probes if probe not in generated)}
    segments = _segments(path)
    with path.open("rb") as file:
        for table, option in (("exported", "-D"), ("full", "")):
            for symbol in _symbols(path, table, option, wanted[table]):
                file.seek(next(symbol.address - base for first, end, base in segments if first <= symbol.address < end))
                yield symbol, file.read(symbol.size if is_whole(symbol.name) else CODE)


def _pattern(probes: Iterable[Probe]) -> re.Pattern[str]:
    """The names of the C functions, and of all C++ functions whose mangled names begin as a probe's."""
    probes = tuple(probes)
    names = [rf"{re.escape(probe.function)}$" for probe in probes if not probe.first_arguments]
    for probe in probes:
        spelled = probe.mangled or (name.decode() for name in beginnings(probe.function, is_local=probe.is_local))
        names += [re.escape(name.removesuffix("E")) for name in spelled if probe.first_arguments]
    return re.compile("|".join(names))


def _symbols(path: Path, table: str, option: str, wanted: re.Pattern[str]) -> list[_Symbol]:
    """The functions that the file defines."""
    command = ["nm", "--print-size", "--defined-only", *filter(None, [option]), str(path)]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    by_probe = (re.match(r"(\w+) (?:(\w+) )?[TtWwi] (\S+)$", line) for line in listing.splitlines())
    named = ((one[3].partition("@")[0], int(one[1], 16), int(one[2] or "0", 16)) for one in by_probe if one)
    return sorted({_Symbol(table, *one) for one in named if wanted.match(one[0])})


def _segments(path: Path) -> list[tuple[int, int, int]]:
    """First and last address of each segment, and the difference between addresses and file offsets."""
    listing = subprocess.run(["readelf", "-lW", str(path)], capture_output=True, text=True, check=True).stdout
    loads = re.findall(r"^  LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+) ", listing, re.MULTILINE)
    return [(int(at, 16), int(at, 16) + int(size, 16), int(at, 16) - int(offset, 16)) for offset, at, size in loads]


if __name__ == "__main__":
    for group in sys.argv[1:] or PACKAGES:
        collect(group)
