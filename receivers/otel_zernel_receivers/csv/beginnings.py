"""Finds the header at the beginning of a file, behind blank lines, banners and Excel's `sep=`."""

import re
from dataclasses import dataclass, field

from otel_zernel.reading.sources import Unreadable
from otel_zernel_receivers.csv.headers import CsvHeader, Headers, stripped
from otel_zernel_receivers.csv.layouts.layout import some
from otel_zernel_receivers.csv.parsing.lines import LineReader
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
    _others: list[bytes] = field(default_factory=list)
    """Lines that are no header."""

    def find(self, lines: LineReader) -> CsvHeader | None:
        """Skips all lines to the header and returns it. None if it is not complete yet.

        A row ends the search. Raises `Unreadable`.
        """
        while line := lines.peek_line():
            raw = stripped(line)
            if raw.strip() and (header := self._examined(raw)):
                if header is not self.known:
                    lines.skip_line()
                return header
            lines.skip_line()
        if line is None and not self._others:
            return None
        raise self._problem()

    def _examined(self, raw: bytes) -> CsvHeader | None:
        """The header in the line, or the known one if the line is a row."""
        if separator := _SEPARATOR.fullmatch(raw):
            self.delimiter = separator[1].decode("latin-1")
            return None
        try:
            return self.headers.parse(raw, self.delimiter)
        except (LookupError, ValueError):
            if self.known:
                return self.known
            self._others.append(raw)
            if self._is_row(raw) or len(self._others) >= _MOST_LINES:
                raise self._problem() from None
        return None

    def _is_row(self, raw: bytes) -> bool:
        """Whether the first cell is a time."""
        try:
            parse_time(raw.partition(self.delimiter.encode())[0].decode().strip('" '))
        except ValueError:
            return False
        return True

    def _problem(self) -> Unreadable:
        """What the line with the most columns lacks."""
        if not self._others:
            return Unreadable(
                f"{self.name} has no header: its first line is empty; add a line with the names of the columns"
            )
        if self._is_row(self._others[0]):
            return Unreadable(
                f"{self.name} has no header: its first line is a row; set header to the names of the columns"
            )
        likely = max((raw for raw in self._others if not self._is_row(raw)), key=self._width)
        return Unreadable(f"the header of {self.name} {self._lack(likely)}")

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
        raise AssertionError("a line that fits is no problem")

    def _advice(self, raw: bytes) -> str:
        """What to change: the delimiter if another one fits, the program's options if it wrote a table."""
        for delimiter in _DELIMITERS.replace(self.delimiter, ""):
            try:
                self.headers.parse(raw, delimiter)
            except (LookupError, ValueError):
                continue
            return f"set delimiter to {delimiter!r}"
        if _TABLE.match(raw.decode(errors="replace")) and not self._width(raw):
            return "it is a table for people: give nvidia-smi the option --format=csv, and dmon or pmon also -o DT"
        return "check the options layout and delimiter"
