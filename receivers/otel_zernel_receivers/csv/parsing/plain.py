"""The plain parser: parses line by line and finds the bad rows. For valid rows it agrees with the fast parser."""

import csv
import math
import re
from datetime import tzinfo

import numpy as np

from otel_zernel_libraries.gpu_names.nvidia_smi_cells import is_missing
from otel_zernel_receivers.csv.layouts.layout import ColumnPlan
from otel_zernel_receivers.csv.parsing.lines import MAX_LINE, LineBlock
from otel_zernel_receivers.csv.parsing.rows import MESSAGE, BadRow, Dialect, ParsedRows, TextColumn
from otel_zernel_receivers.csv.parsing.times import parse_joined, parse_time

_NUMBER = re.compile(r"[ \t]*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[ \t]*", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?: ?[^\d\s]+)?", re.ASCII)
"""A unit may follow."""
_REMARK = re.compile(rb'\s*#|"?sep=.?"?$')
"""The units below the header of `nvidia-smi dmon`, and the first line of a file for Excel."""

_SHOWN = 60
"""The most characters of a cell or a column's name in a message."""


def parse_lines(lines: LineBlock, plan: ColumnPlan, dialect: Dialect) -> tuple[ParsedRows, list[BadRow]]:
    """The block's valid rows and its bad rows, in order.

    Blank lines are skipped, and lines that begin with `#` and are no rows.
    """
    columns = _Columns(plan, dialect.zone)
    bad = []
    for line, with_end in enumerate(lines):
        raw = with_end.rstrip(b"\r\n")
        if raw.strip():
            try:
                columns.add(line, split_line(raw, dialect.delimiter))
            except ValueError as error:
                if _REMARK.match(raw):
                    continue
                reason, *detail = error.args
                reason = MESSAGE if plan.layout.is_message(raw[:200].decode(errors="replace")) else reason
                bad.append(BadRow(line, reason, raw[:MAX_LINE], "".join(detail)))
    return columns.rows(), bad


def split_line(raw: bytes, delimiter: str) -> list[str]:
    """The fields of a line. Raises `ValueError` with the reason of a bad row.

    A quote must be closed in its line. It may follow blanks. Text after a closing quote belongs to the field.
    """
    if len(raw) > MAX_LINE:
        raise ValueError("line too long")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    reader = csv.reader([text, ""], delimiter=delimiter, skipinitialspace=delimiter != " ")
    try:
        fields = next(reader)
    except csv.Error:
        raise ValueError("stray carriage return") from None
    if reader.line_num > 1:
        raise ValueError("broken quote")
    return fields


class _Columns:
    """Collects rows as columns."""

    def __init__(self, plan: ColumnPlan, zone: tzinfo | None) -> None:
        self._plan = plan
        self._zone = zone
        self._lines: list[int] = []
        self._times: list[int] = []
        self._texts: list[tuple[int, list[int], dict[str, int]]] = [(index, [], {}) for _, index in plan.texts]
        self._numbers: list[list[float]] = [[] for _ in plan.numbers]

    def add(self, line: int, fields: list[str]) -> None:
        """Adds a row. Raises `ValueError` with the reason of a bad row and its cell, and adds nothing then."""
        plan = self._plan
        if len(fields) != plan.width:
            raise ValueError("wrong column count", f"it has {len(fields)}, and the header has {plan.width}")
        numbers = [self._number(name, index, fields[index]) for name, index in plan.numbers]
        if plan.time is not None:
            self._times.append(self._time(fields, plan.time))
        self._lines.append(line)
        for column, number in zip(self._numbers, numbers, strict=True):
            column.append(number)
        for index, codes, values in self._texts:
            codes.append(values.setdefault(fields[index], len(values)))

    def _number(self, name: str, index: int, text: str) -> float:
        plan = self._plan
        try:
            if plan.layout.quantities:
                return plan.read_number(name, index, text.strip())
            return math.nan if plan.sparse and is_missing(text.strip()) else _number(text)
        except ValueError:
            hint = "; write the decimal point as a dot" if _DECIMAL_COMMA.fullmatch(text.strip()) else ""
            raise ValueError("not a number", self._cell(index, text) + hint) from None

    def _time(self, fields: list[str], index: int) -> int:
        date = self._plan.date
        try:
            if date is not None:
                return parse_joined(fields[date], fields[index], self._zone)
            return parse_time(fields[index], self._zone)
        except ValueError:
            text = fields[index] if date is None else f"{fields[date].strip()} {fields[index].strip()}"
            raise ValueError("bad time", self._cell(index, text)) from None

    def _cell(self, index: int, text: str) -> str:
        """The column's name and the beginning of the cell."""
        header = self._plan.header
        name = repr(header[index].strip()[:_SHOWN]) if header else str(index + 1)
        return f"column {name} has {text[:_SHOWN]!r}"

    def rows(self) -> ParsedRows:
        return ParsedRows(
            np.array(self._lines, np.int64),
            None if self._plan.time is None else np.array(self._times, np.uint64),
            [TextColumn.stripped(np.array(codes, np.int64), list(values)) for _, codes, values in self._texts],
            [np.array(column, np.float64) for column in self._numbers],
        )


def _number(text: str) -> float:
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise ValueError("not a number")
    return number
