"""Cuts streams of bytes into blocks of whole lines."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_zernel_libraries.files.sources import ReadBytes

MAX_LINE = 128 * 1024
"""The maximum length of a line in bytes, without its line end. Python's csv does not accept longer fields.

A longer line is a bad row.
"""
_CHUNK = 2**20
"""Bytes per read. After each one, the thread waits for Python's lock: few large reads let the stages overlap."""
_MAX_BLOCK = 8 * 2**20
_NEWLINE = ord("\n")


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Consecutive whole lines, with their line ends."""

    data: bytes
    ends: NDArray[np.intp]
    """The offset after each line and its line end; shape (lines,)."""
    first: int
    """The number of the first line in the stream, from 1."""
    end: int = 0
    """The offset in the stream after the last line."""

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for end in self.ends.tolist():
            yield self.data[start:end]
            start = end

    def picked(self, places: NDArray[np.int64]) -> "LineBlock":
        """Some of the lines, by their index."""
        starts = np.concatenate([[0], self.ends[:-1]])
        pieces = [self.data[start:end] for start, end in zip(starts[places], self.ends[places], strict=True)]
        return LineBlock(b"".join(pieces), np.cumsum([len(piece) for piece in pieces], dtype=np.intp), self.first)

    @property
    def longest(self) -> int:
        """The length of the longest line in bytes, with its line end."""
        return int(np.diff(self.ends, prepend=0).max(initial=0))


class LineReader:
    """Cuts a stream into lines. To bound memory, only the first `MAX_LINE` + 1 bytes of a long line are kept."""

    def __init__(self, read: ReadBytes, number: int = 1, offset: int = 0) -> None:
        """`number` and `offset` are those of the next line in the stream."""
        self._read = read
        self._head = b""
        self._number = number
        self._offset = offset
        self._pending = _Pending()

    @property
    def number(self) -> int:
        """That of the line that `peek_line` returns."""
        return self._number

    @property
    def offset(self) -> int:
        """That of the line that `peek_line` returns."""
        return self._offset

    def peek_line(self) -> bytes | None:
        """The next line: empty at the end of the stream, None if it is not complete yet.

        Must not be called after `blocks`.
        """
        while (end := self._head.find(b"\n")) < 0 and len(self._head) <= MAX_LINE:
            data = self._read(_CHUNK)
            if not data:
                return None if data is None else self._head
            self._head += data
        return self._head[: end + 1] if end >= 0 else self._head

    def skip_line(self) -> None:
        """Skips the line that `peek_line` has returned."""
        line, newline, self._head = self._head.partition(b"\n")
        self._number += 1
        self._offset += len(line) + len(newline)

    def blocks(self, size: int) -> Iterator[LineBlock | None]:
        """The remaining lines in blocks of `size` lines; None while there are no new lines.

        A block is smaller at the end, before a None, and if it would be larger than 8 MiB. If reading raises an error,
        the whole lines before it are yielded first.
        """
        data: bytes | None = self._head
        self._head = b""
        while True:
            if data:
                yield from self._cut(data, size)
            try:
                data = self._read(_CHUNK)
            except Exception:
                yield from self._flush()  # the lines before the error are valid
                raise
            if data == b"":
                break
            if data is None:
                yield from self._flush()
                yield None
        if self._pending.unfinished:
            self._offset -= 1  # the line end that is added here is not in the stream
            yield from self._cut(b"\n", size)
        yield from self._flush()

    def _cut(self, data: bytes, size: int) -> Iterator[LineBlock]:
        data = self._pending.truncate(data)
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

    def _flush(self) -> Iterator[LineBlock]:
        """All pending whole lines, as one block."""
        if self._pending.count:
            self._offset += self._pending.skipped
            data, ends = self._pending.pop_lines()
            self._offset += len(data)
            block = LineBlock(data, ends, self._number, self._offset)
            self._number += len(ends)
            yield block


class _Pending:
    """Bytes that are not yet in a block. They are kept in the pieces that were read and joined only once, for speed."""

    def __init__(self) -> None:
        self.size = 0
        self.count = 0
        """The number of whole lines."""
        self.unfinished = 0
        """The length in bytes of the last line if it has no line end yet."""
        self._pieces: list[bytes] = []
        self._ends: list[NDArray[np.intp]] = []
        self.skipped = 0
        """The length in bytes of the parts of whole lines that were cut off."""
        self._skipping = False
        """Whether the rest of a line that is too long is being skipped."""
        self._cut_off = 0
        """The length in bytes of the part of the unfinished line that was cut off."""

    def truncate(self, data: bytes) -> bytes:
        """The next data, with lines cut to `MAX_LINE` + 1 bytes."""
        if self._skipping:
            end = data.find(b"\n")
            self._cut_off += len(data) if end < 0 else end
            if end < 0:
                return b""
            data, self._skipping = data[end:], False
            self.skipped, self._cut_off = self.skipped + self._cut_off, 0
        newline = data.rfind(b"\n")
        unfinished = len(data) - newline - 1 + (self.unfinished if newline < 0 else 0)
        if unfinished <= MAX_LINE:
            return data
        self._skipping = True
        self._cut_off = unfinished - MAX_LINE - 1
        return data[: len(data) - unfinished + MAX_LINE + 1]

    def add(self, piece: bytes, ends: NDArray[np.intp]) -> None:
        """Appends a piece. `ends` are the offsets after its lines, shape (lines,)."""
        self._pieces.append(piece)
        self._ends.append(ends + self.size)
        self.size += len(piece)
        self.count += len(ends)
        self.unfinished = len(piece) - int(ends[-1]) if len(ends) else self.unfinished + len(piece)

    def pop_lines(self) -> tuple[bytes, NDArray[np.intp]]:
        """Removes and returns the whole lines and the offset after each. An unfinished line stays."""
        data, ends = b"".join(self._pieces), np.concatenate(self._ends)
        rest = data[int(ends[-1]) :]
        self.size = self.count = self.unfinished = self.skipped = 0
        self._pieces = []
        self._ends = []
        if rest:
            self.add(rest, ends[:0])
            data = data[: int(ends[-1])]
        return data, ends
