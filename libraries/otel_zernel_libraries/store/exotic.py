"""Rows in SQLite's own types. SQLite makes NaN NULL and -0.0 zero, so that the column `exotic` has such doubles."""

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from otel_zernel_libraries.store.rows.points import Row
from otel_zernel_libraries.store.rows.tables import POINTS, PointTable

_EXOTIC: Final = struct.Struct("<Bd")


def to_sqlite(table: PointTable, rows: Iterable[Row]) -> list[Row]:
    """The rows with their column `exotic`, arrays as packed numbers."""
    if not table.doubles:
        return list(rows)
    if table is POINTS:  # an ordinary number, nearly always
        return [(*row, None) if row[2] is None or row[2] < 0 or row[2] > 0 else _encoded(table, row) for row in rows]
    return [_encoded(table, row) for row in rows]


def from_sqlite(table: PointTable, row: Sequence[Any]) -> Row:
    """The row as it was given to `to_sqlite`."""
    if not table.doubles:
        return tuple(row)
    *values, exotic = row
    for position, value in _EXOTIC.iter_unpack(exotic or b""):
        values[position] = value
    for position in (*table.double_arrays, *table.count_arrays):
        if (packed := values[position]) is not None:
            values[position] = list(struct.unpack(f"<{len(packed) // 8}{_letter(table, position)}", packed))
    return tuple(values)


def _encoded(table: PointTable, row: Row) -> Row:
    values, exotic = list(row), b""
    for position in table.doubles:
        value = values[position]
        if value is not None and (value != value or (value == 0.0 and math.copysign(1.0, value) < 0)):
            exotic += _EXOTIC.pack(position, value)
            values[position] = None if value != value else 0.0
    for position in (*table.double_arrays, *table.count_arrays):
        if (numbers := values[position]) is not None:
            values[position] = struct.pack(f"<{len(numbers)}{_letter(table, position)}", *numbers)
    return (*values, exotic or None)


def _letter(table: PointTable, position: int) -> str:
    return "d" if position in table.double_arrays else "q"
