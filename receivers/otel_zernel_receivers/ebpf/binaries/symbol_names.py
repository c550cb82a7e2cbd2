"""Searching the names of a symbol table, piece by piece: in other people's files, a table may be of any size."""

import os
from collections.abc import Iterable, Iterator

LONGEST = 4096
"""Bytes of a name. A longer one is not found; the longest in PyTorch 2.13 has 973."""
MOST = 1024
"""Names that one search may find."""
MOST_BYTES = 64 << 20
"""Of a table. PyTorch 2.13's libtorch_cpu.so exports 5 MB of names, libtorch_python.so holds 7 MB."""
_PIECE = 1 << 20


class UnreadableElf(ValueError):
    """No 64-bit little-endian ELF file of a processor we know, or one whose tables contradict each other."""


def find_names(fd: int, offset: int, size: int, beginnings: Iterable[bytes]) -> dict[int, str]:
    """The names in a string table that begin so, by their position in the table.

    A part of a longer name is found too: no symbol has its position. Raises OSError or UnreadableElf.
    """
    beginnings = tuple(beginnings)
    found: dict[int, str] = {}
    count = 0
    for at, piece in pieces(fd, offset, size, _PIECE, overlap=LONGEST):
        for position in _positions(piece, beginnings):
            count += 1
            if count > MOST:
                raise UnreadableElf(f"more than {MOST} functions of one name")
            end = piece.find(b"\0", position, position + LONGEST)
            if end >= 0:
                found[at + position] = piece[position:end].decode(errors="replace")
    return found


def pieces(fd: int, offset: int, size: int, width: int, overlap: int = 0) -> Iterator[tuple[int, bytes]]:
    """A table in pieces of `width` bytes and `overlap` bytes of the next one, each with its position in the table.

    Raises OSError or UnreadableElf.
    """
    if size > MOST_BYTES or offset > os.fstat(fd).st_size - size:
        raise UnreadableElf(f"a table of {size} bytes at {offset}")
    for at in range(0, size, width):
        wanted = min(width + overlap, size - at)
        piece = os.pread(fd, wanted, offset + at)
        if len(piece) < wanted:
            raise UnreadableElf("the file was cut short while it was read")
        yield at, piece


def _positions(piece: bytes, beginnings: Iterable[bytes]) -> Iterator[int]:
    """Where in the piece, without its overlap, one of them is."""
    for beginning in beginnings:
        end = _PIECE + len(beginning) - 1
        at = piece.find(beginning, 0, end)
        while at >= 0:
            yield at
            at = piece.find(beginning, at + 1, end)
