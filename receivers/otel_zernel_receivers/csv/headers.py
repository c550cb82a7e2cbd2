"""Headers: the first one of a file, and those of loggers that were started again with other fields."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from otel_zernel_receivers.csv.layouts.layout import ColumnPlan, CsvLayout, find_columns
from otel_zernel_receivers.csv.parsing.lines import LineBlock
from otel_zernel_receivers.csv.parsing.plain import split_line

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FEW = 64
"""Up to this number, lines that do not begin with a number are examined one by one."""
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
        for place, line in self._candidates(block, header.delimiter):
            if new := self.in_the_middle(line, current.delimiter):
                current = new
                if new not in headers:
                    headers.append(new)
                is_header[place], owner[place:] = True, headers.index(new)
        if not is_header.any():
            return [Part(header, block)], header
        parts = [(one, np.flatnonzero((owner == number) & ~is_header)) for number, one in enumerate(headers)]
        return [Part(one, block.picked(places), places) for one, places in parts if len(places)], current

    def _candidates(self, block: LineBlock, delimiter: str) -> Iterable[tuple[int, bytes]]:
        """The lines that may be headers, and their index: rows usually begin with a number, headers never do."""
        data, starts = np.frombuffer(block.data, np.uint8), np.concatenate([[0], block.ends[:-1]])
        first, second = data[starts], data[np.minimum(starts + 1, len(data) - 1)]
        is_row = _is_digit(first) | (((first == ord('"')) | (first == ord(" "))) & _is_digit(second))
        places = np.flatnonzero(~is_row).tolist()
        lines = ((place, block.data[starts[place] : block.ends[place]]) for place in places)
        if len(places) <= _FEW:
            return lines
        signs = [sign for sign in self._signs if all(name in block.data for name in sign)]
        number_in_cell = re.compile(re.escape(delimiter.encode()) + rb' *"?[0-9]')
        return (
            (place, line)
            for place, line in (lines if signs else ())
            if any(all(name in line for name in sign) for sign in signs) and not number_in_cell.search(line)
        )

    @cached_property
    def _signs(self) -> list[tuple[bytes, ...]]:
        """For each layout, the names of columns of which every header has all."""
        required = [
            [*([layout.timestamp] if self.timed and layout.timestamp else []), *layout.required]
            for layout in self.layouts
        ]
        return [tuple(sorted({name.encode() for name in names}, key=len, reverse=True)) for names in required]

    @cached_property
    def _columns(self) -> frozenset[str]:
        """The columns of all layouts."""
        return frozenset(name for layout in self.layouts for name in layout.names)

    def _names_columns(self, names: Sequence[str]) -> bool:
        """Whether the cells of a line are names of columns: two are known, and none is a number."""
        known = [layout.columns(names) for layout in self.layouts]
        is_known = any(len(self._columns.intersection(columns)) > 1 for columns in known)
        return is_known and not any(name.strip()[:1].isdigit() for name in names)

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


def _is_digit(characters: NDArray[np.uint8]) -> NDArray[np.bool_]:
    digits: NDArray[np.bool_] = (characters - np.uint8(ord("0"))) < 10  # smaller ones wrap around
    return digits
