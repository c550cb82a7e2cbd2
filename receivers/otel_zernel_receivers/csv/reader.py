"""Reads files one after the other, as blocks of lines with a plan of their columns."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from otel_zernel.reading.growing import GrowingFile
from otel_zernel.reading.listing import list_files
from otel_zernel.reading.positions import Position
from otel_zernel.reading.sources import (
    ByteSource,
    ReadBytes,
    Unreadable,
    is_stream,
    open_source,
    reading_errors,
)
from otel_zernel_receivers.csv.layouts.layout import ColumnPlan, CsvLayout, find_columns
from otel_zernel_receivers.csv.parsing.lines import LineBlock, LineReader
from otel_zernel_receivers.csv.parsing.plain import split_line
from otel_zernel_receivers.csv.parsing.times import parse_time

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHUNK = 2**20
"""Bytes per read while lines are counted."""


@dataclass(frozen=True, slots=True)
class CsvHeader:
    """The first line of a file."""

    line: str
    plan: ColumnPlan

    @property
    def raw(self) -> bytes:
        """The line without byte order mark and line end."""
        return self.line.encode().removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r\n")


@dataclass(frozen=True, slots=True)
class _Place:
    """What is needed to go on in a file."""

    header: str
    line: int
    """The number of the next line, from 1."""
    index: int
    """The index of the next line, counted from 0 after the header."""

    @classmethod
    def parse(cls, resume: Mapping[str, Any] | None) -> "_Place | None":
        """The stored place; None if it is not one."""
        match resume:
            case {"header": str(header), "line": int(line), "index": int(index)}:
                return cls(header, line, index)
        return None


def is_place(resume: Mapping[str, Any]) -> bool:
    """Whether this is the `resume` of a block."""
    return _Place.parse(resume) is not None


@dataclass(frozen=True, slots=True)
class FileBlock:
    """Consecutive lines of one file, after its header."""

    file: str
    lines: LineBlock
    header: CsvHeader
    index: int
    """The index of the first line, counted from 0 after the header."""

    @property
    def plan(self) -> ColumnPlan:
        return self.header.plan

    @property
    def end(self) -> int:
        """The offset in the file after the block."""
        return self.lines.end

    @property
    def resume(self) -> Mapping[str, Any]:
        """The header, and the number and index of the next line."""
        count = len(self.lines.ends)
        return asdict(_Place(self.header.line, self.lines.first + count, self.index + count))


@dataclass(frozen=True, slots=True)
class CsvFileReader:
    """Reads files of one layout. Its methods may block and raise `Unreadable`."""

    layouts: Sequence[CsvLayout]
    """The possible layouts. The first one that has its columns in the header is used."""
    timed: bool
    """Whether rows must have a time."""
    delimiter: str
    batch_size: int
    stop: threading.Event
    """Ends the waiting for a pipe or the standard input."""
    header: str | None = None
    """The header of files without one."""

    def expand(self, patterns: Sequence[str]) -> list[str]:
        """The files that match the paths and globs. A path may name a missing file."""
        names: dict[str, None] = {}
        for pattern in patterns:
            listing = list_files([pattern])
            if listing.problems:
                raise next(iter(listing.problems.values()))
            if not listing.files and any(character in pattern for character in "*?["):
                raise Unreadable(f"no file matches {pattern}")
            names.update(dict.fromkeys(listing.files or [pattern]))
        return list(names)

    def check(self, name: str) -> None:
        """Checks that a file has a valid header. Does not check a pipe, which can be read only once."""
        with reading_errors(name):
            if is_stream(name):
                return
        with closing(self._open(name)) as source, reading_errors(name):
            self._find_header(name, LineReader(source.read))

    def check_followed(self, name: str) -> None:
        """Checks that a file can be followed. An unfinished header is valid."""
        with reading_errors(name):
            if is_stream(name):
                raise Unreadable(f"cannot follow {name}: it is not a regular file; remove follow")
            with closing(GrowingFile(name)) as file:
                self._find_header(name, LineReader(_uncompressed(file)))

    def read(self, name: str) -> Iterator[FileBlock | None]:
        """The blocks of a file; None while there are no new lines."""
        with closing(self._open(name)) as source:
            yield from self._from_beginning(name, source.read)

    def follow(self, file: GrowingFile, resume: Mapping[str, Any] | None) -> Iterator[FileBlock | None]:
        """The blocks of a growing file from its offset; None while there are no new lines.

        `resume` is that of the block before the offset. In a file that was truncated since, the header is optional.
        """
        place = _Place.parse(resume)
        if place and file.offset:
            yield from self.go_on(file.name, file.read, file.offset, resume)
            return
        if resume is None and file.offset and (found := self._at_last_line(file)):
            yield from self._blocks(file.name, *found)
            return
        header = self._parse_header(file.name, place.header) if place else None
        file.rewind()
        yield from self._from_beginning(file.name, _uncompressed(file), header)

    def _at_last_line(self, file: GrowingFile) -> tuple[LineReader, CsvHeader, int] | None:
        """Goes to the last line that begins before the file's offset. None if that is the header."""
        end = file.offset
        file.rewind()
        header = self._find_header(file.name, LineReader(_uncompressed(file)))
        file.rewind()
        count = after_last = 0
        while header and file.offset < end and (data := file.read(min(_CHUNK, end - file.offset))):
            count += data.count(b"\n")
            after_last = file.offset - len(data) + data.rfind(b"\n") + 1 if b"\n" in data else after_last
        if not header or not file.go_on(Position(after_last, file.fingerprint(after_last), {})):
            return None
        return LineReader(file.read, count + 1, after_last), header, count - 1

    def go_on(
        self, name: str, read: ReadBytes, offset: int, resume: Mapping[str, Any] | None
    ) -> Iterator[FileBlock | None]:
        """The blocks of a file that `read` reads from `offset` on. `resume` is that of the block before the offset."""
        place = _Place.parse(resume)
        if place and offset:
            header = self._parse_header(name, place.header)
            yield from self._blocks(name, LineReader(read, place.line, offset), header, place.index)
        else:
            yield from self._from_beginning(name, read)

    def _from_beginning(self, name: str, read: ReadBytes, known: CsvHeader | None = None) -> Iterator[FileBlock | None]:
        lines = LineReader(read)
        with reading_errors(name):
            while (header := self._find_header(name, lines, known)) is None:
                yield None
            yield from self._blocks(name, lines, header)

    def _blocks(self, name: str, lines: LineReader, header: CsvHeader, index: int = 0) -> Iterator[FileBlock | None]:
        with reading_errors(name):
            for block in lines.blocks(self.batch_size):
                yield FileBlock(name, block, header, index) if block else None
                index += len(block.ends) if block else 0

    def _open(self, name: str) -> ByteSource:
        with reading_errors(name):
            return open_source(name, self.stop)

    def _find_header(self, name: str, lines: LineReader, known: CsvHeader | None = None) -> CsvHeader | None:
        """Finds the columns in the header and skips it. None if the header is not complete yet."""
        line = lines.peek_line()
        if line is None:
            return None
        if not line.strip():
            raise Unreadable(f"{name} has no header: its first line is empty; add a line with the names of the columns")
        known = known or (self._parse_header(name, self.header) if self.header else None)
        try:
            header = self._parse_header(name, line)
        except Unreadable:
            if known:
                return known
            raise
        lines.skip_line()
        return header

    def _parse_header(self, name: str, line: bytes | str) -> CsvHeader:
        raw = line.encode() if isinstance(line, str) else line
        try:
            names = split_line(raw.removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r\n"), self.delimiter)
            return CsvHeader(raw.decode(), self._plan(names))
        except (LookupError, ValueError) as error:
            if _is_time(raw, self.delimiter):
                raise Unreadable(
                    f"{name} has no header: its first line is a row; set header to the names of the columns"
                ) from None
            problem = error.args[0] if isinstance(error, LookupError) else f"is not valid CSV ({error})"
            raise Unreadable(f"the header of {name} {problem}; check the options layout and delimiter") from None

    def _plan(self, names: Sequence[str]) -> ColumnPlan:
        """The columns of the first layout that fits. Raises `LookupError`."""
        problems = []
        for layout in self.layouts:
            try:
                return find_columns(layout, names, timed=self.timed)
            except LookupError as error:
                problems.append(f"{error.args[0]} (layout {layout.name})" if layout.name else error.args[0])
        raise LookupError(", ".join(problems))


def _is_time(line: bytes, delimiter: str) -> bool:
    """Whether the first cell of a line is a time."""
    try:
        parse_time(line.partition(delimiter.encode())[0].decode().strip('"'))
    except ValueError:
        return False
    return True


def _uncompressed(file: GrowingFile) -> ReadBytes:
    if file.compressed:
        raise Unreadable(f"cannot follow {file.name}: it is compressed; follow the uncompressed file")
    return file.read
