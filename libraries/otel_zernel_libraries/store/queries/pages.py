"""Pages of points, in the order of time or of series, from a key on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal

from otel_zernel_libraries.store.queries.series import SelectedSeries
from otel_zernel_libraries.store.reading import StoreReader
from otel_zernel_libraries.store.rows.points import Row
from otel_zernel_libraries.store.rows.tables import POINT_TABLES, PointTable
from otel_zernel_libraries.store.statement import SqlStatement

Order = Literal["time", "-time", "series"]
Key = tuple[int, int]
"""The series id and the time of a point."""

_FEW: Final = 32
_MOST_PARTS: Final = 400
"""SQLite joins at most 500 queries in one."""


@dataclass(slots=True, frozen=True)
class PointSelection:
    """The points of some series from one time to another."""

    series: SelectedSeries
    start_ns: int
    end_ns: int
    """The first time after the selection."""

    def is_selective(self, ids: Sequence[int]) -> bool:
        """Whether the points of each of these series are found faster than those of a time.

        By series, `len(ids)` pages are read; by time, the share of the selected series decides how many.
        """
        many, selected = len(ids), self.series
        return not selected.is_all and many <= _MOST_PARTS and (many <= _FEW or many * many <= selected.total)


async def page(
    reader: StoreReader,
    selection: PointSelection,
    order: Order,
    size: int,
    *,
    after: Key | None = None,
    offset: int = 0,
) -> list[Row]:
    """At most `size` rows of all tables behind `after` and `offset`, each with all columns of its table.

    Raises `Retryable` if the database does not answer.
    """
    tables = [table for table in POINT_TABLES if table.name in selection.series.ids]
    if len(tables) == 1:
        return await _rows(reader, tables[0], selection, order, size, after, offset)
    rows: list[Row] = []
    for table in tables:
        rows += await _rows(reader, table, selection, order, size + offset, after, 0)
    rows.sort(key=_sort_key(order), reverse=order == "-time")
    return [*islice(rows, offset, offset + size)]


async def _rows(
    reader: StoreReader,
    table: PointTable,
    selection: PointSelection,
    order: Order,
    size: int,
    after: Key | None,
    offset: int,
) -> list[Row]:
    statement, ids = SqlStatement(reader.dialect), selection.series.ids[table.name]
    source = f"SELECT {', '.join(reader.columns(table))} FROM {reader.table(table.name)}"  # noqa: S608
    condition, sorting = _conditions(statement, selection, order, after), _sorting(order)
    limit = f"LIMIT {statement.number(size)} OFFSET {statement.number(offset)}"
    if selection.series.is_all:
        sql = f"{source} WHERE {condition} {sorting} {limit}"
    elif not selection.is_selective(ids):
        among = statement.is_among("series_id", ids)
        sql = f"{source} WHERE {condition} AND {among} {sorting} {limit}"
    else:
        enough = f"LIMIT {statement.number(size + offset)}"
        of_each = _of_each(statement, ids, source, condition, f"{sorting} {enough}")
        sql = f"SELECT * FROM ({of_each}) AS found {sorting} {limit}"  # noqa: S608
    return await reader.points(table, sql, statement)


def _of_each(statement: SqlStatement, ids: Iterable[int], source: str, condition: str, end: str) -> str:
    """The first rows of each series, by the index of its key."""
    if not statement.is_sqlite:
        part = f"{source} WHERE series_id = wanted.id AND {condition} {end}"
        return f"SELECT rows.* FROM ({statement.ids(ids)}) AS wanted CROSS JOIN LATERAL ({part}) AS rows"  # noqa: S608
    parts = (f"({source} WHERE series_id = {statement.number(id_)} AND {condition} {end})" for id_ in ids)
    return " UNION ALL ".join(f"SELECT * FROM {part}" for part in parts)  # noqa: S608


def _conditions(statement: SqlStatement, selection: PointSelection, order: Order, after: Key | None) -> str:
    start, end = selection.start_ns, selection.end_ns
    key = ""
    if after is not None:
        series, time = after
        if order == "time":
            start = max(start, time)
        elif order == "-time":
            end = min(end, time + 1)
        columns = "(series_id, time)" if order == "series" else "(time, series_id)"
        pair = (series, time) if order == "series" else (time, series)
        values = ", ".join(statement.number(value) for value in pair)
        key = f" AND {columns} {'<' if order == '-time' else '>'} ({values})"
    return f"time >= {statement.number(start)} AND time <= {statement.number(end - 1)}{key}"


def _sorting(order: Order) -> str:
    if order == "series":
        return "ORDER BY series_id, time"
    direction = " DESC" if order == "-time" else ""
    return f"ORDER BY time{direction}, series_id{direction}"


def _sort_key(order: Order) -> Any:
    return (lambda row: (row[0], row[1])) if order == "series" else (lambda row: (row[1], row[0]))
