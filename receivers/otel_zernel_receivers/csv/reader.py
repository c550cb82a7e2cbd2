"""Reads files one after the other, as blocks of lines with a plan of their columns.

The header is at the beginning of a file, behind blank lines, banners and Excel's `sep=`.
"""

import csv
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from io import StringIO
from typing import Any

import numpy as np

from otel_zernel_libraries.files.growing import GrowingFile
from otel_zernel_libraries.files.listing import list_files
from otel_zernel_libraries.files.sources import (
    ByteSource,
    ReadBytes,
    Unreadable,
    is_stream,
    open_source,
    reading_errors,
)
from otel_zernel_receivers.csv.config import Columns
from otel_zernel_receivers.csv.headers import CsvHeader, Headers, Part, stripped
from otel_zernel_receivers.csv.layouts.dcgm import DcgmLayout
from otel_zernel_receivers.csv.layouts.layout import CsvLayout, CustomLongLayout, CustomWideLayout, WideLayout, some
from otel_zernel_receivers.csv.layouts.nvidia_smi import NvidiaSmiLayout
from otel_zernel_receivers.csv.parsing.lines import LineBlock, LineReader
from otel_zernel_receivers.csv.parsing.plain import split_line
from otel_zernel_receivers.csv.parsing.times import parse_time

_MOST_LINES = 20
"""The header is one of the first 20 lines that are not blank."""
_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(rb'"?sep=(.)"?\s*', re.IGNORECASE)
_DATE_AND_TIME = re.compile(rb"# *date\W+time\b", re.IGNORECASE)
_TABLE = re.compile(r"\+-{3}|\| *NVIDIA-SMI|# *(gpu|date|time)\b", re.IGNORECASE)


def layouts_for(configured: str | Columns) -> Sequence[CsvLayout]:
    """The layouts that a file may have, in the order in which they are tried."""
    if isinstance(configured, Columns):
        return (CustomWideLayout(configured) if configured.metrics else CustomLongLayout(configured),)
    layouts = (DcgmLayout(), NvidiaSmiLayout(), WideLayout())
    return [layout for layout in layouts if configured in ("auto", layout.name)]


@dataclass
class HeaderSearch:
    """The search for the header of one file."""

    headers: Headers
    name: str
    delimiter: str
    """That of the file, once a line `sep=;` has declared it."""
    known: CsvHeader | None = None
    """The header of files without one."""
    report: Callable[[str, str], object] = lambda *_: None
    """Takes the name of a file whose header has not come yet, and what its lines lack."""
    _others: dict[int, bytes] = field(default_factory=dict)
    """Lines that are no header, by their number."""
    _reported: int = 0
    """The number of these lines that were reported."""
    _is_misread: bool = False
    """Whether one of them is a header with another delimiter."""

    def find(self, lines: LineReader) -> CsvHeader | None:
        """Skips all lines to the header and returns it. None if it has not come yet.

        A row ends the search. Raises `Unreadable`.
        """
        while line := lines.peek_line():
            raw = stripped(line)
            if raw.strip() and (header := self._examined(lines.number, raw)):
                if header is not self.known:
                    lines.skip_line()
                return header
            lines.skip_line()
        if line is None and not self._is_misread:
            if len(self._others) > self._reported:
                self._reported = len(self._others)
                self.report(self.name, f"{self._problem()}; waiting for a later header")
            return None
        raise self._problem()

    def rows_above(self, header: CsvHeader) -> Part | None:
        """The lines above the header that have as many columns."""
        rows = {number: raw for number, raw in self._others.items() if _is_row_of(header, raw)}
        if not rows:
            return None
        ends = np.cumsum([len(raw) + 1 for raw in rows.values()], dtype=np.intp)
        lines = LineBlock(b"".join(raw + b"\n" for raw in rows.values()), ends, 1)
        unknown = CsvHeader("", None, header.delimiter, "comes below it")
        return Part(unknown, lines, np.array(list(rows), np.int64) - 1)

    def _examined(self, number: int, raw: bytes) -> CsvHeader | None:
        """The header in the line, or the known one if the line is a row."""
        if separator := _SEPARATOR.fullmatch(raw):
            return self._separated(separator[1].decode("latin-1"))
        if header := self._header(raw, self.delimiter):
            return header
        if self.known:
            return self.known
        self._others[number] = raw
        if self._is_row(raw) or len(self._others) >= _MOST_LINES:
            raise self._problem()
        self._is_misread |= bool(self._better_delimiter(raw))
        return None

    def _separated(self, delimiter: str) -> CsvHeader | None:
        """Takes the delimiter that the file declares. The header if it is above this line."""
        self.delimiter = delimiter
        self._is_misread = False
        if self.known:
            cells = split_line(self.known.line.encode(), self.known.delimiter)
            self.known = self.headers.parse(_joined(cells, delimiter), delimiter)
        for number, raw in self._others.items():
            if header := self._header(raw, delimiter):
                del self._others[number]
                return header
        return None

    def _header(self, raw: bytes, delimiter: str) -> CsvHeader | None:
        try:
            return self.headers.parse(raw, delimiter)
        except (LookupError, ValueError):
            return None

    def _is_row(self, raw: bytes) -> bool:
        """Whether the first cell is a time."""
        try:
            parse_time(raw.partition(self.delimiter.encode())[0].decode().strip('" '))
        except ValueError:
            return False
        return True

    def _problem(self) -> Unreadable:
        """What the line lacks that is most likely the header."""
        if not self._others:
            return Unreadable(
                f"{self.name} has no header: its first line is empty; add a line with the names of the columns"
            )
        if self._is_row(next(iter(self._others.values()))):
            return Unreadable(
                f"{self.name} has no header: its first line is a row; set header to the names of the columns"
            )
        likely = max((raw for raw in self._others.values() if not self._is_row(raw)), key=self._likelihood)
        return Unreadable(f"the header of {self.name} {self._lack(likely)}")

    def _likelihood(self, raw: bytes) -> tuple[bool, int]:
        """How likely a line is the header: it is one with another delimiter, or has many columns."""
        return bool(self._better_delimiter(raw)), self._width(raw)

    def _width(self, raw: bytes) -> int:
        return raw.count(self.delimiter.encode())

    def _lack(self, raw: bytes) -> str:
        if b"\0" in raw:
            return "is not UTF-8 but perhaps UTF-16; convert the file to UTF-8"
        try:
            self.headers.parse(raw, self.delimiter)
        except LookupError as problem:
            names = [repr(name.strip()) for name in split_line(raw, self.delimiter)]
            return f"{problem.args[0]}; its columns are {some(names)}; {self._advice(raw)}"
        except UnicodeDecodeError:
            return "is not UTF-8; convert the file to UTF-8"
        except ValueError as problem:
            return f"is not valid CSV ({problem}); {self._advice(raw)}"
        return self._advice(raw)

    def _advice(self, raw: bytes) -> str:
        """What to change: the delimiter if another one fits, the program's options if it wrote a table."""
        if delimiter := self._better_delimiter(raw):
            return f"set delimiter to {delimiter!r}"
        if _TABLE.match(raw.decode(errors="replace")) and not self._width(raw):
            return "it is a table for people: give nvidia-smi the option --format=csv, and dmon or pmon also -o DT"
        if _TABLE.match(raw.decode(errors="replace")) and not _DATE_AND_TIME.match(raw):
            return "give nvidia-smi dmon the option -o DT, so that rows have a date and a time, or set timestamps: now"
        return "check the options layout and delimiter"

    def _better_delimiter(self, raw: bytes) -> str:
        """Another delimiter with which the line is a header; empty if there is none."""
        others = _DELIMITERS.replace(self.delimiter, "")
        return next(
            (delimiter for delimiter in others if delimiter.encode() in raw and self._header(raw, delimiter)), ""
        )


def _is_row_of(header: CsvHeader, raw: bytes) -> bool:
    """Whether a line that is no remark has as many columns as the header. A line of one column may be anything."""
    try:
        cells = split_line(raw, header.delimiter)
    except ValueError:
        return False
    return len(cells) == len(split_line(header.line.encode(), header.delimiter)) > 1 and not raw.lstrip().startswith(
        b"#"
    )


def _joined(cells: Sequence[str], delimiter: str) -> str:
    """The line with these cells."""
    line = StringIO()
    csv.writer(line, delimiter=delimiter, lineterminator="").writerow(cells)
    return line.getvalue()


@dataclass(frozen=True, slots=True)
class _Place:
    """What is needed to go on in a file."""

    header: str
    line: int
    """The number of the next line, from 1."""
    index: int
    """The index of the next line, counted from 0 after the first header."""
    delimiter: str = ""
    """Empty in positions that older versions stored: it is the configured one."""

    @classmethod
    def parse(cls, resume: Mapping[str, Any] | None) -> "_Place | None":
        """The stored place; None if it is not one."""
        match resume:
            case {"header": str(header), "line": int(line), "index": int(index)}:
                return cls(header, line, index, str((resume or {}).get("delimiter", "")))
        return None


def is_place(resume: Mapping[str, Any]) -> bool:
    """Whether this is the `resume` of a block."""
    return _Place.parse(resume) is not None


@dataclass(frozen=True, slots=True)
class FileBlock:
    """Consecutive lines of one file, after its first header; or the lines up to it, if rows are above it."""

    file: str
    lines: LineBlock
    header: CsvHeader
    """The header in force after the block."""
    index: int
    """The index of the first line, counted from 0 after the first header."""
    parts: Sequence[Part]
    """The lines, by their header."""

    @property
    def end(self) -> int:
        """The offset in the file after the block."""
        return self.lines.end

    @property
    def resume(self) -> Mapping[str, Any]:
        """The header, and the number and index of the next line."""
        count, header = len(self.lines.ends), self.header
        return asdict(_Place(header.line, self.lines.first + count, self.index + count, header.delimiter))


@dataclass(slots=True)
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
    report: Callable[[str, str], object] = lambda *_: None
    """Takes the name of a file whose header has not come yet, and what it lacks."""
    headers: Headers = field(init=False)

    def __post_init__(self) -> None:
        self.headers = Headers(self.layouts, self.timed)

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
            self._search(name).find(LineReader(source.read))

    def check_followed(self, name: str) -> None:
        """Checks that a file can be followed. Its header may come later."""
        with reading_errors(name):
            if is_stream(name):
                raise Unreadable(f"cannot follow {name}: it is not a regular file; remove follow")
            with closing(GrowingFile(name)) as file:
                self._search(name).find(LineReader(_uncompressed(file)))

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
        if resume is None and file.offset and (at_last_line := self._at_last_line(file)):
            yield from self._blocks(file.name, *at_last_line)
            return
        header = self._stored_header(file.name, place) if place else None
        file.rewind()
        yield from self._from_beginning(file.name, _uncompressed(file), header)

    def _at_last_line(self, file: GrowingFile) -> tuple[LineReader, CsvHeader, int] | None:
        """Goes to the last line that begins before the file's offset. None if the file has no row there."""
        end = file.offset
        file.rewind()
        read = _uncompressed(file)
        lines = LineReader(lambda size: read(min(size, end - file.offset)) if file.offset < end else None)
        header = self._search(file.name).find(lines)
        last = None
        for block in self._blocks(file.name, lines, header) if header else ():
            if block is None:
                break
            last = block
        if last is None:
            return None
        file.skip_to(last.end)
        count = len(last.lines.ends)
        return LineReader(file.read, last.lines.first + count, last.end), last.header, last.index + count

    def go_on(
        self, name: str, read: ReadBytes, offset: int, resume: Mapping[str, Any] | None
    ) -> Iterator[FileBlock | None]:
        """The blocks of a file that `read` reads from `offset` on. `resume` is that of the block before the offset."""
        place = _Place.parse(resume)
        if place and offset:
            header = self._stored_header(name, place)
            yield from self._blocks(name, LineReader(read, place.line, offset), header, place.index)
        else:
            yield from self._from_beginning(name, read)

    def _from_beginning(self, name: str, read: ReadBytes, known: CsvHeader | None = None) -> Iterator[FileBlock | None]:
        lines, search = LineReader(read), self._search(name, known)
        with reading_errors(name):
            while (header := search.find(lines)) is None:
                yield None
            if rows := search.rows_above(header):
                count = lines.number - 1
                skipped = LineBlock(b"", np.zeros(count, np.intp), 1, lines.offset)
                yield FileBlock(name, skipped, header, -count, [rows])
            yield from self._blocks(name, lines, header)

    def _blocks(self, name: str, lines: LineReader, header: CsvHeader, index: int = 0) -> Iterator[FileBlock | None]:
        with reading_errors(name):
            for block in lines.blocks(self.batch_size):
                if block is None:
                    yield None
                    continue
                parts, header = self.headers.parts(block, header)
                yield FileBlock(name, block, header, index, parts)
                index += len(block.ends)

    def _open(self, name: str) -> ByteSource:
        with reading_errors(name):
            return open_source(name, self.stop)

    def _search(self, name: str, known: CsvHeader | None = None) -> HeaderSearch:
        """`known` is the header that the file had before it was truncated."""
        if known is None and self.header:
            known = self._configured_header(self.header)
        return HeaderSearch(self.headers, name, known.delimiter if known else self.delimiter, known, self.report)

    def _configured_header(self, line: str) -> CsvHeader:
        try:
            return self.headers.parse(line, self.delimiter)
        except (LookupError, ValueError) as problem:
            raise Unreadable(f"the option header {problem.args[0]}; name the columns as in a header") from None

    def _stored_header(self, name: str, place: _Place) -> CsvHeader:
        """The header in force at a place. It may be any that `Headers.parts` found."""
        delimiter = place.delimiter or self.delimiter
        if header := self.headers.in_the_middle(place.header, delimiter):
            return header
        raise Unreadable(f"the header of {name} has other columns than the layout; check the option layout")


def _uncompressed(file: GrowingFile) -> ReadBytes:
    if file.encoding == "UTF-16":
        raise Unreadable(f"cannot follow {file.name}: it is UTF-16; let its writer use UTF-8, or remove follow")
    if file.encoding:
        raise Unreadable(f"cannot follow {file.name}: it is compressed; follow the uncompressed file")
    return file.read
