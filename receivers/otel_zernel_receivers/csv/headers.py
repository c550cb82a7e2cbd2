"""Headers: the first one of a file, and those of loggers that were started again with other fields."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from otel_zernel_receivers.csv.layouts.layout import ColumnPlan, CsvLayout, find_columns
from otel_zernel_receivers.csv.parsing.lines import LineBlock
from otel_zernel_receivers.csv.parsing.plain import split_line

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KEPT = 256
"""Remembered lines, whether they are headers or not."""
_LONGEST_KEPT = 16 * 1024
"""Bytes of a line above which it is not remembered."""


@dataclass(frozen=True, slots=True)
class CsvHeader:
    """A line with the names of the columns."""

    line: str
    """Without byte order mark and line end."""
    plan: ColumnPlan | None
    """None if a required column is missing, so that its rows cannot be read."""
    delimiter: str
    problem: str = ""
    """A predicate that names the columns that are missing."""


@dataclass(frozen=True, slots=True)
class Part:
    """The lines of a block that have one header."""

    header: CsvHeader
    lines: LineBlock
    places: NDArray[np.int64] | None = None
    """The index of each line in the block, shape (lines,). None if the part is the whole block."""


@dataclass(frozen=True)
class Headers:
    """Recognises headers of some layouts. The first layout that has its columns is used."""

    layouts: Sequence[CsvLayout]
    timed: bool
    """Whether rows must have a time."""
    _known: dict[tuple[bytes, str], CsvHeader | None] = field(default_factory=dict)

    def parse(self, raw: bytes | str, delimiter: str) -> CsvHeader:
        """The header in a line. Raises `LookupError` with a predicate, or `ValueError` if the line is not valid CSV."""
        raw = stripped(raw)
        return CsvHeader(raw.decode(), self._plan(split_line(raw, delimiter)), delimiter)

    def in_the_middle(self, raw: bytes | str, delimiter: str) -> CsvHeader | None:
        """The header in a line below a header; None if the line is none.

        Columns of custom layouts may be missing there: the other metrics go on. A header without a required column has
        no plan, since the header before is not that of its rows.
        """
        raw = stripped(raw)
        key = raw, delimiter
        if len(raw) > _LONGEST_KEPT:
            return self._in_the_middle(raw, delimiter)
        if key not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = self._in_the_middle(raw, delimiter)
        return self._known[key]

    def _in_the_middle(self, raw: bytes, delimiter: str) -> CsvHeader | None:
        try:
            names = split_line(raw, delimiter)
            line = raw.decode()
        except ValueError:
            return None
        try:
            plan = self._plan(names, partly=True)
        except LookupError as problem:
            return CsvHeader(line, None, delimiter, problem.args[0]) if self._names_columns(names) else None
        missing = [repr(name) for name in plan.layout.numbers if name not in dict(plan.numbers)]
        lacks = f"has no column {' and no column '.join(missing)}" if plan.layout.requires_all_numbers else ""
        return CsvHeader(line, plan, delimiter, lacks if missing else "")

    def parts(self, block: LineBlock, header: CsvHeader) -> tuple[list[Part], CsvHeader]:
        """The lines of the block by their header, without the headers; and the header in force after the block.

        `header` is in force before the block.
        """
        headers, owner, is_header = [header], np.zeros(len(block.ends), np.int64), np.zeros(len(block.ends), np.bool_)
        current = header
        candidates = sorted([*self._candidates(block, header.delimiter), *self._torn(block, header)])
        for place, line, is_torn in candidates:
            if is_torn and is_header[place]:
                continue
            if new := self.in_the_middle(line, current.delimiter):
                current = new
                if new not in headers:
                    headers.append(new)
                is_header[place], owner[place + is_torn :] = not is_torn, headers.index(new)
        if len(headers) == 1 and not is_header.any():
            return [Part(header, block)], header
        parts = [(header, np.flatnonzero((owner == number) & ~is_header)) for number, header in enumerate(headers)]
        return [Part(layout, block.picked(places), places) for layout, places in parts if len(places)], current

    def _candidates(self, block: LineBlock, delimiter: str) -> Iterator[tuple[int, bytes, bool]]:
        """The lines that may be headers, and their index: rows usually begin with a number, headers never do.

        The other rows have a number in a cell. A header has one only if a column that the layouts need is beside it.
        """
        data, starts = np.frombuffer(block.data, np.uint8), _starts(block)
        may_be = ~_is_number(data, starts)
        if not may_be.any():
            return
        marks = np.flatnonzero(data == delimiter.encode()[-1])
        numbers = marks[_is_number(data, marks + 1)]
        has_number = np.diff(np.searchsorted(numbers, block.ends), prepend=0) > 0
        needed = np.zeros(len(starts), np.bool_)
        needed[np.searchsorted(block.ends, self._needed_cells(block.data, delimiter), "right")] = True
        for place in np.flatnonzero(may_be & (needed | ~has_number)).tolist():
            yield place, block.data[starts[place] : block.ends[place]], False

    def _needed_cells(self, data: bytes, delimiter: str) -> list[int]:
        """The offsets of the cells that name a column that layouts need: the time, or without times any other."""
        mark = delimiter.encode()
        times = {layout.timestamp for layout in self.layouts if layout.timestamp}.union(("Date", "date", "DATE"))
        names = [name.encode() for name in (times if self.timed else self._keys)]
        names = [name for name in names if name in data and (mark + name in data or name + mark in data)]
        if not names:
            return []
        cell = rb'(?:^|%b)[ #"]*(?:%b)[ "]*(?:$|%b|\r)' % (
            re.escape(mark),
            b"|".join(map(re.escape, names)),
            re.escape(mark),
        )
        return [match.start() for match in re.finditer(cell, data, re.MULTILINE)]

    def _torn(self, block: LineBlock, header: CsvHeader) -> Iterator[tuple[int, bytes, bool]]:
        """Headers behind a row that a killed logger has not ended, and the index of the line.

        Such a header begins with the same column as the header before it, or with the time.
        """
        data, mark = block.data, header.delimiter.encode()
        for name in self._first_cells(header):
            if name not in data or (name + mark not in data and name + b'"' + mark not in data):
                continue
            for match in _names_to_the_end(name, header.delimiter).finditer(data):
                place = int(np.searchsorted(block.ends, match.start(), "right"))
                start = int(block.ends[place - 1]) if place else 0
                before = data[start : match.start()].lstrip(b' "')
                if before[:1].isdigit() or _number_cell(header.delimiter).search(before):
                    yield place, b'"' * before.endswith(b'"') + match[0], True

    def _first_cells(self, header: CsvHeader) -> set[bytes]:
        names = {
            split_line(header.line.encode(), header.delimiter)[0],
            *(layout.timestamp or "" for layout in self.layouts),
        }
        return {name.strip(" #").encode() for name in names} - {b""}

    @cached_property
    def _keys(self) -> frozenset[str]:
        """The columns that some layout needs: the time, and texts."""
        texts = {name for layout in self.layouts for name in (*layout.required, *chain.from_iterable(layout.either))}
        return frozenset(texts | {layout.timestamp for layout in self.layouts if layout.timestamp} | {"date"})

    @cached_property
    def _columns(self) -> frozenset[str]:
        """The columns of all layouts."""
        return frozenset(name for layout in self.layouts for name in layout.names)

    def _names_columns(self, names: Sequence[str]) -> bool:
        """Whether the cells of a line are names of columns, and none is a number.

        One known column is enough if a layout needs it. Of others, two are known.
        """
        if any(name.strip()[:1].isdigit() for name in names):
            return False
        known = [self._columns.intersection(layout.columns(names)) for layout in self.layouts]
        return any(len(columns) > 1 or not columns.isdisjoint(self._keys) for columns in known)

    def _plan(self, names: Sequence[str], *, partly: bool = False) -> ColumnPlan:
        """The columns of the first layout that fits. Raises `LookupError`."""
        problems = []
        for layout in self.layouts:
            try:
                return find_columns(layout, names, timed=self.timed, partly=partly)
            except LookupError as error:
                problems.append(f"{error.args[0]} (layout {layout.name})" if layout.name else error.args[0])
        raise LookupError(", ".join(problems))


def stripped(raw: bytes | str) -> bytes:
    """The line without byte order mark and line end."""
    return (raw.encode() if isinstance(raw, str) else raw).removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r\n")


def _starts(block: LineBlock) -> NDArray[np.intp]:
    """The offset of each line, shape (lines,)."""
    return np.concatenate([np.zeros(1, np.intp), block.ends[:-1]])


@lru_cache
def _number_cell(delimiter: str) -> re.Pattern[bytes]:
    """A cell that begins with a number, such as `61`, `50 %` or a time."""
    return re.compile(rb'(?:^|%b) *"?[+-]?\.?[0-9]' % re.escape(delimiter.encode()))


@lru_cache
def _names_to_the_end(first: bytes, delimiter: str) -> re.Pattern[bytes]:
    """A cell that ends with the name `first`, and cells that begin with no digit, to the end of the line."""
    mark = re.escape(delimiter.encode())
    return re.compile(rb'%b"? *(?:%b[ "]*[^0-9\s%b"][^\n%b]*)+(?=\n|$)' % (re.escape(first), mark, mark, mark))


def _is_number(data: NDArray[np.uint8], starts: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether there is a digit at these offsets or behind one blank or quote."""
    first, second = (data[np.minimum(starts + place, len(data) - 1)] for place in (0, 1))
    is_number: NDArray[np.bool_] = _is_digit(first) | (((first == ord('"')) | (first == ord(" "))) & _is_digit(second))
    return is_number


def _is_digit(characters: NDArray[np.uint8]) -> NDArray[np.bool_]:
    digits: NDArray[np.bool_] = (characters - np.uint8(ord("0"))) < 10  # smaller ones wrap around
    return digits
