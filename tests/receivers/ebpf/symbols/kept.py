"""Stored excerpts of the symbol tables of released libraries: text tables, with one row for each symbol.

`collect.py` makes them. For PyTorch they include functions whose names only have the same beginning as a probed one.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
CODE = 16
"""Bytes that are stored of each function. Functions with probes on their returns are stored whole."""


class Kept(NamedTuple):
    """A function of a library in a release."""

    package: str
    version: str
    arch: str
    library: str
    table: str
    """The symbol table: `exported`, or `full` if the library was not stripped."""
    name: str
    address: int
    code: str
    """Its first bytes, or all of them, in hexadecimal."""


class Returns(NamedTuple):
    """The place at which a function of a release begins to return, according to binutils."""

    version: str
    arch: str
    name: str
    offsets: tuple[int, ...]
    """Bytes from its first instruction."""


class Build(NamedTuple):
    """A wheel."""

    package: str
    version: str
    arch: str
    cuda: str
    """The version of CUDA's runtime that it requires; empty if none."""
    nccl: str
    has_cuda: bool
    """Whether it contains libtorch_cuda.so."""


@cache
def symbols(group: str) -> tuple[Kept, ...]:
    """The stored functions of `torch`, `cuda` or `nccl`, oldest release first."""
    return tuple(
        Kept(package, version, arch, library, table, name, int(address, 16), code)
        for package, version, arch, library, table, name, address, code in _rows(f"{group}.tsv")
    )


@cache
def builds(group: str) -> tuple[Build, ...]:
    """The wheels that the functions come from."""
    return tuple(
        Build(package, version, arch, cuda, nccl, has_cuda == "True")
        for package, version, arch, cuda, nccl, has_cuda in _rows(f"{group}.builds.tsv")
    )


@cache
def returns() -> tuple[Returns, ...]:
    """The returns of those functions of PyTorch that have probes on their returns."""
    return tuple(
        Returns(version, arch, name, tuple(map(int, offsets.split())))
        for version, arch, name, offsets in _rows("torch.returns.tsv")
    )


def write_symbols(path: Path, kept: Iterable[Kept]) -> None:
    """Writes a file that `symbols` reads."""
    _write(path, ((*one[:6], f"{one.address:x}", one.code) for one in kept))


def write_builds(path: Path, made: Iterable[Build]) -> None:
    """Writes a file that `builds` reads."""
    _write(path, made)


def write_returns(path: Path, found: Iterable[Returns]) -> None:
    """Writes a file that `returns` reads."""
    _write(path, ((*one[:3], " ".join(map(str, one.offsets))) for one in found))


def _rows(name: str) -> Iterator[list[str]]:
    for line in (FOLDER / name).read_text("ascii").splitlines():
        yield line.split("\t")


def _write(path: Path, rows: Iterable[tuple[object, ...]]) -> None:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), "ascii")
