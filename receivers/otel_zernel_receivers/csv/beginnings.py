"""Finds the header at the beginning of a file, behind blank lines, banners and Excel's `sep=`."""

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import StringIO

import numpy as np

from otel_zernel_libraries.files.sources import Unreadable
from otel_zernel_receivers.csv.headers import CsvHeader, Headers, Part, stripped
from otel_zernel_receivers.csv.layouts.layout import some
from otel_zernel_receivers.csv.parsing.lines import LineBlock, LineReader
from otel_zernel_receivers.csv.parsing.plain import split_line
from otel_zernel_receivers.csv.parsing.times import parse_time

_MOST_LINES = 20
"""The header is one of the first 20 lines that are not blank."""
_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(rb'"?sep=(.)"?\s*', re.IGNORECASE)
_TABLE = re.compile(r"\+-{3}|\| *NVIDIA-SMI|# *(gpu|date|time)\b", re.IGNORECASE)


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
        self.delimiter, self._is_misread = delimiter, False
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
        try:
            self.headers.parse(raw, self.delimiter)
        except LookupError as problem:
            names = [repr(name.strip()) for name in split_line(raw, self.delimiter)]
            return f"{problem.args[0]}; its columns are {some(names)}; {self._advice(raw)}"
        except ValueError as problem:
            if b"\0" in raw:
                return "is not UTF-8 but perhaps UTF-16; convert the file to UTF-8"
            return f"is not valid CSV ({problem}); {self._advice(raw)}"
        return self._advice(raw)

    def _advice(self, raw: bytes) -> str:
        """What to change: the delimiter if another one fits, the program's options if it wrote a table."""
        if delimiter := self._better_delimiter(raw):
            return f"set delimiter to {delimiter!r}"
        if _TABLE.match(raw.decode(errors="replace")) and not self._width(raw):
            return "it is a table for people: give nvidia-smi the option --format=csv, and dmon or pmon also -o DT"
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
