"""Searches the names of a symbol table piece by piece: in files of other users, a table may have any size."""

import os
import re
from collections.abc import Iterable, Iterator

LONGEST = 4096
"""Bytes of the longest name that is found. The longest in PyTorch 2.13 has 973."""
MOST = 1024
"""The most names that one search may find."""
MOST_BYTES = 256 << 20
"""Bytes of the largest table that is searched, which takes 0.3 s. In PyTorch 2.13, libtorch_cpu.so has 5 MB of exported
names and 76 MB of all names."""
_PIECE = 1 << 20


class UnreadableElf(ValueError):
    """The file is no 64-bit little-endian ELF file for a supported processor, or its tables contradict each other."""


def find_names(fd: int, offset: int, size: int, beginnings: Iterable[bytes]) -> dict[int, str]:
    """The names in a string table that begin with one of `beginnings`, by their position in the table.

    The end of a longer name may be found too, but no symbol refers to its position. Raises OSError or UnreadableElf.
    """
    pattern = re.compile(b"|".join(map(re.escape, beginnings)))
    names: dict[int, str] = {}
    count = 0
    for at, piece in pieces(fd, offset, size, _PIECE, overlap=LONGEST):
        for match in pattern.finditer(piece):
            position = match.start()
            if position >= _PIECE:
                break
            count += 1
            if count > MOST:
                raise UnreadableElf(f"more than {MOST} functions of one name")
            end = piece.find(b"\0", position, position + LONGEST)
            if end >= 0:
                names[at + position] = piece[position:end].decode(errors="replace")
    return names


def pieces(fd: int, offset: int, size: int, width: int, overlap: int = 0) -> Iterator[tuple[int, bytes]]:
    """The pieces of a table, each with its position: `width` bytes, plus up to `overlap` bytes of the next piece.

    Raises OSError or UnreadableElf.
    """
    if size > MOST_BYTES or offset > os.fstat(fd).st_size - size:
        raise UnreadableElf(f"a table of {size} bytes at {offset} is too large or reaches beyond the end of the file")
    for at in range(0, size, width):
        wanted = min(width + overlap, size - at)
        piece = os.pread(fd, wanted, offset + at)
        if len(piece) < wanted:
            raise UnreadableElf("the file was truncated during reading")
        yield at, piece
