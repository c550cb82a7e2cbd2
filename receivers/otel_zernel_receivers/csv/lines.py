"""Streams of bytes, cut into blocks of whole lines."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Read = Callable[[int], bytes | None]
"""Reads some bytes, about so many at most; empty at the end, None if there is nothing now but there may be later."""

MAX_LINE = 128 * 1024
"""Bytes of a line without its end. A longer one is a bad row. It is also the longest field that Python's csv takes."""
_CHUNK = 256 * 1024
_MAX_BLOCK = 8 * 2**20
_NEWLINE = ord("\n")


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines that stood together, each with its line end."""

    data: bytes
    ends: NDArray[np.intp]
    """Where each line ends, behind its line end; shape (lines,)."""
    first: int
    """The number of the first, from 1."""

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for end in self.ends.tolist():
            yield self.data[start:end]
            start = end

    @property
    def longest(self) -> int:
        """Bytes of the longest line, its end included."""
        return int(np.diff(self.ends, prepend=0).max(initial=0))


class LineReader:
    """Cuts a stream into lines, in bounded memory: of one longer than `MAX_LINE` only so much, and a byte, is kept."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._head = b""
        self._number = 1
        self._pending = _Pending()

    def peek_line(self) -> bytes | None:
        """The next line, if it is there already: empty at the end of the stream, None if it may come later.

        To be used before `blocks`.
        """
        while (end := self._head.find(b"\n")) < 0 and len(self._head) <= MAX_LINE:
            data = self._read(_CHUNK)
            if not data:
                return None if data is None else self._head
            self._head += data
        return self._head[: end + 1] if end >= 0 else self._head

    def skip_line(self) -> None:
        """Goes past the line that `peek_line` returned."""
        _, _, self._head = self._head.partition(b"\n")
        self._number += 1

    def blocks(self, size: int) -> Iterator[Lines | None]:
        """The rest in blocks of `size` lines, or less: at the end, from 8 MiB on, and before a None (nothing now).

        Raises what reading raises, after the whole lines that came before.
        """
        data: bytes | None = self._head
        self._head = b""
        while True:
            if data:
                yield from self._cut(data, size)
            try:
                data = self._read(_CHUNK)
            except Exception:
                yield from self._flush()  # what came before the damage is good
                raise
            if data == b"":
                break
            if data is None:
                yield from self._flush()
                yield None
        if self._pending.unfinished:
            yield from self._cut(b"\n", size)
        yield from self._flush()

    def _cut(self, data: bytes, size: int) -> Iterator[Lines]:
        data = self._pending.bounded(data)
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1
        start = taken = 0
        while len(ends) - taken >= (room := size - self._pending.count):
            end = int(ends[taken + room - 1])
            self._pending.add(data[start:end], ends[taken : taken + room] - start)
            yield from self._flush()
            start, taken = end, taken + room
        self._pending.add(data[start:], ends[taken:] - start)
        if self._pending.size > _MAX_BLOCK:
            yield from self._flush()

    def _flush(self) -> Iterator[Lines]:
        """All whole lines that wait."""
        if self._pending.count:
            data, ends = self._pending.take()
            yield Lines(data, ends, self._number)
            self._number += len(ends)


class _Pending:
    """Bytes that wait to become a block, in the pieces they came in: joining them once is what makes it cheap."""

    def __init__(self) -> None:
        self.size = 0
        self.count = 0
        """Whole lines."""
        self.unfinished = 0
        """Bytes of the last line, which has no end yet."""
        self._pieces: list[bytes] = []
        self._ends: list[NDArray[np.intp]] = []
        self._skipping = False

    def bounded(self, data: bytes) -> bytes:
        """What is next, without what makes a line too long by more than a byte."""
        if self._skipping:
            end = data.find(b"\n")
            if end < 0:
                return b""
            data, self._skipping = data[end:], False
        newline = data.rfind(b"\n")
        unfinished = len(data) - newline - 1 + (self.unfinished if newline < 0 else 0)
        if unfinished <= MAX_LINE:
            return data
        self._skipping = True
        return data[: len(data) - unfinished + MAX_LINE + 1]

    def add(self, piece: bytes, ends: NDArray[np.intp]) -> None:
        """Appends a piece; `ends` are those of its lines, shape (lines,)."""
        self._pieces.append(piece)
        self._ends.append(ends + self.size)
        self.size += len(piece)
        self.count += len(ends)
        self.unfinished = len(piece) - int(ends[-1]) if len(ends) else self.unfinished + len(piece)

    def take(self) -> tuple[bytes, NDArray[np.intp]]:
        """The whole lines, and where each ends. What is unfinished stays."""
        data, ends = b"".join(self._pieces), np.concatenate(self._ends)
        rest = data[int(ends[-1]) :]
        self.size = self.count = self.unfinished = 0
        self._pieces, self._ends = [], []
        if rest:
            self.add(rest, ends[:0])
            data = data[: int(ends[-1])]
        return data, ends
