"""Functions that a library keeps to itself, found in its full symbol table where it was not stripped.

The table and its strings are read whole, which for PyTorch's 30 MB libtorch_python.so takes 10 ms, once per file.
"""

import os
import struct
import sys

import numpy as np

from otel_zernel_receivers.ebpf.elf import UnreadableElf

_MAX_TABLE = 256 << 20
_SHT_SYMTAB = 2
_SECTION_TABLE = struct.Struct("<40xQ10xHH2x")  # of the ELF header: offset, width and number of section headers
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


def find_local(fd: int, name: str) -> int | None:
    """The virtual address of the only symbol with this name; None if there is none, or no table.

    Raises OSError, or UnreadableElf if the file contradicts itself.
    """
    sections = _sections(fd)
    table = next((section for section in sections if section[1] == _SHT_SYMTAB), None)
    if table is None:
        return None
    _, _, _, _, offset, size, link, *_ = table
    if link >= len(sections):
        raise UnreadableElf("symbols without strings")
    strings = _read(fd, sections[link][4], sections[link][5])
    at = strings.find(b"\0" + name.encode() + b"\0") + 1
    if not at:
        return None
    symbols = np.frombuffer(_read(fd, offset, size - size % _SYMBOL.itemsize), _SYMBOL)
    found = symbols["value"][symbols["name"] == at]
    return int(found[0]) if len(found) == 1 else None


def _sections(fd: int) -> list[tuple[int, ...]]:
    offset, width, count = _SECTION_TABLE.unpack(_read(fd, 0, _SECTION_TABLE.size))
    if width != _SECTION.size:
        return []
    return list(_SECTION.iter_unpack(_read(fd, offset, width * count)))


def _read(fd: int, offset: int, size: int) -> bytes:
    if size > _MAX_TABLE or offset > sys.maxsize:  # beyond of what a file can have
        raise UnreadableElf(f"a table of {size} bytes at {offset}")
    data = os.pread(fd, size, offset)
    if len(data) < size:
        raise UnreadableElf("a table reaches beyond the end of the file")
    return data
