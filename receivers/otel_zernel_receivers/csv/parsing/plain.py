"""The plain parser: parses line by line and finds the bad rows. For valid rows it agrees with the fast parser."""

import csv
import math
import re
from datetime import tzinfo

import numpy as np

from otel_zernel_receivers.csv.layouts.layout import ColumnPlan
from otel_zernel_receivers.csv.parsing.lines import MAX_LINE, LineBlock
from otel_zernel_receivers.csv.parsing.rows import MESSAGE, BadRow, Dialect, ParsedRows, TextColumn
from otel_zernel_receivers.csv.parsing.times import parse_time

_NUMBER = re.compile(r"[ \t]*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[ \t]*", re.ASCII)


def parse_lines(
    lines: LineBlock, plan: ColumnPlan, dialect: Dialect, header: bytes = b""
) -> tuple[ParsedRows, list[BadRow]]:
    """The block's valid rows and its bad rows, in order. Blank lines and repetitions of the header are skipped."""
    columns = _Columns(plan, dialect.zone)
    bad = []
    for line, with_end in enumerate(lines):
        raw = with_end.rstrip(b"\r\n")
        if raw and raw != header:
            try:
                columns.add(line, split_line(raw, dialect.delimiter))
            except ValueError as error:
                reason = MESSAGE if plan.layout.is_message(raw[:200].decode(errors="replace")) else str(error)
                bad.append(BadRow(line, reason, raw[:MAX_LINE]))
    return columns.rows(), bad


def split_line(raw: bytes, delimiter: str) -> list[str]:
    """The fields of a line. Raises `ValueError` with the reason of a bad row.

    A quote must be closed in its line. Text after a closing quote belongs to the field.
    """
    if len(raw) > MAX_LINE:
        raise ValueError("line too long")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    reader = csv.reader([text, ""], delimiter=delimiter)
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
        """Adds a row. Raises `ValueError` with the reason of a bad row, and adds nothing then."""
        plan = self._plan
        if len(fields) != plan.width:
            raise ValueError("wrong column count")
        numbers = [self._number(name, fields[index]) for name, index in plan.numbers]
        if plan.time is not None:
            self._times.append(_time(fields[plan.time], self._zone))
        self._lines.append(line)
        for column, number in zip(self._numbers, numbers, strict=True):
            column.append(number)
        for index, codes, values in self._texts:
            codes.append(values.setdefault(fields[index], len(values)))

    def _number(self, name: str, text: str) -> float:
        if not self._plan.layout.quantities:
            return _number(text, sparse=self._plan.sparse)
        try:
            return self._plan.layout.read_number(name, text)
        except ValueError:
            raise ValueError("not a number") from None

    def rows(self) -> ParsedRows:
        return ParsedRows(
            np.array(self._lines, np.int64),
            None if self._plan.time is None else np.array(self._times, np.uint64),
            [TextColumn(np.array(codes, np.int64), list(values)) for _, codes, values in self._texts],
            [np.array(column, np.float64) for column in self._numbers],
        )


def _number(text: str, *, sparse: bool) -> float:
    if sparse and not text:
        return math.nan
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise ValueError("not a number")
    return number


def _time(text: str, zone: tzinfo | None) -> int:
    try:
        return parse_time(text, zone)
    except ValueError:
        raise ValueError("bad time") from None
