"""Finds functions that a library does not export, in its full symbol table, unless the library was stripped.

The table and its names are read in pieces. That takes 10 ms for PyTorch's libtorch_python.so (30 MB), once per file.
"""

import os
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from otel_zernel_receivers.ebpf.binaries.symbol_names import MOST, UnreadableElf, find_names, pieces

_MAX_SECTIONS = 1024
_SHT_SYMTAB = 2
_STT_FUNC = 2
_SECTION_TABLE = struct.Struct("<40xQ10xHHH")  # of the ELF header: offset, width, number and names of section headers
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_AT_ONCE = 1 << 16
"""Symbols in one piece."""


def find_local(fd: int, beginnings: Iterable[bytes]) -> list[tuple[str, int]]:
    """Names and virtual addresses of the functions whose names begin with one of `beginnings`; empty without a table.

    Raises OSError, or UnreadableElf if the file contradicts itself.
    """
    sections = _sections(fd)
    table = _table(sections)
    if table is None:
        return []
    _, _, _, _, offset, size, link, *_ = table
    if link >= len(sections):
        raise UnreadableElf("the symbol table has no names")
    names = find_names(fd, sections[link][4], sections[link][5], beginnings)
    return list(_functions(fd, offset, size - size % _SYMBOL.itemsize, names)) if names else []


def is_stripped(fd: int) -> bool:
    """Whether the file has no full symbol table. Raises OSError or UnreadableElf."""
    return _table(_sections(fd)) is None


class Section(NamedTuple):
    """A part of a file."""

    address: int
    """Virtual."""
    offset: int
    size: int


def find_section(fd: int, name: bytes) -> Section | None:
    """The section of this name; None if the file has none. Raises OSError or UnreadableElf."""
    sections, names = _sections(fd), _SECTION_TABLE.unpack(read(fd, 0, _SECTION_TABLE.size))[3]
    if names >= len(sections):
        return None
    _, _, _, _, offset, size, *_ = sections[names]
    at = find_names(fd, offset, size, [name + b"\0"])
    return next((Section(*section[3:6]) for section in sections if section[0] in at), None)


def _table(sections: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    return next((section for section in sections if section[1] == _SHT_SYMTAB), None)


def _functions(fd: int, offset: int, size: int, names: dict[int, str]) -> Iterator[tuple[str, int]]:
    count = 0
    for _, piece in pieces(fd, offset, size, _AT_ONCE * _SYMBOL.itemsize):
        symbols = np.frombuffer(piece, _SYMBOL)
        of_name = symbols[np.isin(symbols["name"], list(names))]
        defined = of_name[(of_name["section"] != 0) & (of_name["info"] & 0xF == _STT_FUNC)]
        count += len(defined)
        if count > MOST:
            raise UnreadableElf(f"more than {MOST} functions of one name")
        for symbol in defined:
            yield names[int(symbol["name"])], int(symbol["value"])


def _sections(fd: int) -> list[tuple[int, ...]]:
    offset, width, count, _ = _SECTION_TABLE.unpack(read(fd, 0, _SECTION_TABLE.size))
    if width != _SECTION.size or count > _MAX_SECTIONS:
        return []
    return list(_SECTION.iter_unpack(read(fd, offset, width * count)))


def read(fd: int, offset: int, size: int) -> bytes:
    """So many bytes of a file. Raises OSError, or UnreadableElf if it is shorter."""
    if offset > sys.maxsize:  # larger than any file
        raise UnreadableElf(f"a table of {size} bytes at {offset} reaches beyond the end of the file")
    data = os.pread(fd, size, offset)
    if len(data) < size:
        raise UnreadableElf("a table reaches beyond the end of the file")
    return data
