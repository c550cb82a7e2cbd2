"""Aggregates of number points, computed by the database."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import floor
from typing import Any, Final

from otel_zernel_libraries.store.queries.cells import Cell, Place
from otel_zernel_libraries.store.reading import StoreReader
from otel_zernel_libraries.store.statement import SqlStatement

Pairs = Sequence[tuple[int, int]]
"""The id of a series and the number of its group."""


@dataclass(slots=True, frozen=True)
class Windows:
    """A span of time in windows of equal length; the last may be shorter."""

    start_ns: int
    end_ns: int
    step_ns: int

    @property
    def many(self) -> int:
        return -(-(self.end_ns - self.start_ns) // self.step_ns)

    def span(self, number: int) -> tuple[int, int]:
        """The first ns of a window, and the first after it."""
        begin = self.start_ns + number * self.step_ns
        return begin, min(begin + self.step_ns, self.end_ns)


async def aggregated_values(reader: StoreReader, pairs: Pairs, windows: Windows) -> dict[Place, Cell]:
    """The number, sum, minimum and maximum of the values. NaN and points without a value do not count."""
    statement = SqlStatement(reader.dialect)
    raw = _raw(reader, statement, pairs, windows)
    sql = (
        f"WITH raw AS ({raw}) "  # noqa: S608
        f"SELECT part, win, count(*), sum({_SMALL_V}), min(d), min(i), max(d), max(i) FROM raw GROUP BY part, win"
    )
    rows = await reader.fetch(sql, *statement.values)
    return {
        (row[0], row[1]): Cell(row[2], _grown(row[3]), _chosen(min, row[4:6]), _chosen(max, row[6:8])) for row in rows
    }


async def quantiles_of_values(
    reader: StoreReader, pairs: Pairs, windows: Windows, quantiles: Iterable[float]
) -> dict[Place, dict[float, float]]:
    """The exact quantiles, linear between two values, as PostgreSQL's percentile_cont has them."""
    statement = SqlStatement(reader.dialect)
    raw = _raw(reader, statement, pairs, windows)
    wanted = sorted(quantiles)
    if reader.dialect == "postgresql":
        listed = ", ".join(map(repr, wanted))
        sql = (
            f"WITH raw AS ({raw}) SELECT part, win, percentile_cont(ARRAY[{listed}]::float8[]) "  # noqa: S608
            "WITHIN GROUP (ORDER BY v) FROM raw GROUP BY part, win"
        )
        rows = await reader.fetch(sql, *statement.values)
        return {(part, win): dict(zip(wanted, values, strict=True)) for part, win, values in rows}
    places = ", ".join(f"CAST({quantile!r} * (many - 1) AS INTEGER) + {step}" for quantile in wanted for step in (0, 1))
    sql = (
        f"WITH raw AS ({raw}), ranked AS (SELECT part, win, v, "  # noqa: S608
        "row_number() OVER (PARTITION BY part, win ORDER BY v) - 1 AS place, "
        "count(*) OVER (PARTITION BY part, win) AS many FROM raw) "
        f"SELECT part, win, place, v, many FROM ranked WHERE place IN ({places})"
    )
    return _interpolated(await reader.fetch(sql, *statement.values), wanted)


async def increases(reader: StoreReader, pairs: Pairs, windows: Windows) -> dict[Place, Cell]:
    """The increase of cumulative sums, with the number of points.

    A point adds its difference to the point before it, which may be older than the first window. After a reset (a
    smaller value, or a start after the point before) it adds its whole value; so does a first point that started within
    the windows.
    """
    statement = SqlStatement(reader.dialect)
    start = statement.number(windows.start_ns)
    points, has_value = reader.table("points"), _HAS_VALUE[reader.dialect]
    wanted = (
        f"SELECT id, part, coalesce((SELECT max(p.time) FROM {points} AS p "  # noqa: S608
        f"WHERE p.series_id = pairs.id AND p.time < {start} AND {has_value}), {start}) AS since "
        f"FROM ({statement.pairs(pairs)}) AS pairs"
    )
    sql = (
        f"WITH wanted AS ({wanted}), raw AS (SELECT wanted.part, p.time, p.start, {_VALUE} AS v, p.value_int AS i, "  # noqa: S608
        f"lag({_VALUE}) OVER one AS before, lag(p.value_int) OVER one AS i_before, "
        "lag(p.start) OVER one AS start_before, lag(p.time) OVER one AS time_before "
        f"FROM wanted CROSS JOIN {points} AS p WHERE p.series_id = wanted.id AND p.time >= wanted.since "
        f"AND p.time < {statement.number(windows.end_ns)} AND {has_value} "
        "WINDOW one AS (PARTITION BY p.series_id ORDER BY p.time)) "
        f"SELECT part, (time - {start}) / {statement.number(windows.step_ns)} AS win, count(*), "
        f"sum({_SMALL_V}) FROM (SELECT part, time, CASE WHEN before IS NULL "
        f"THEN CASE WHEN start >= {start} THEN v ELSE 0 END "
        "WHEN start > coalesce(start_before, 0) AND start >= time_before THEN v "
        "WHEN i IS NOT NULL AND i_before IS NOT NULL "
        f"THEN CASE WHEN i < i_before THEN v ELSE {_DIFFERENCE[reader.dialect]} END "
        "WHEN v < before THEN v ELSE v - before END AS v FROM raw) AS grown "
        f"WHERE time >= {start} GROUP BY part, win"
    )
    rows = await reader.fetch(sql, *statement.values)
    return {(part, win): Cell(count, _grown(total)) for part, win, count, total in rows}


_SMALL: Final = 2.0**-64
_SMALL_V: Final = f"CASE WHEN v BETWEEN -1e-280 AND 1e-280 THEN 0 ELSE v * {_SMALL!r} END"
"""Sums are of values times `_SMALL`, which is exact. The databases fail at sums beyond their largest number, and
PostgreSQL at products below its smallest one."""
_VALUE = "coalesce(p.value_double, p.value_int)"
_HAS_VALUE = {
    "sqlite": f"{_VALUE} IS NOT NULL",  # NaN is NULL
    "postgresql": f"{_VALUE} <> 'NaN'::float8",
}
_DIFFERENCE = {"sqlite": "i - i_before", "postgresql": "(i::numeric - i_before)::float8"}
"""The difference of two integers. Doubles have only the first 53 bits of them."""


def _chosen(choose: Callable[[Iterable[float]], float], values: Iterable[float | None]) -> float | None:
    """The smallest or the largest of a double and an integer, either of which may be missing."""
    return choose(known) if (known := [value for value in values if value is not None]) else None


def _grown(total: float | None) -> float | None:
    return None if total is None else total / _SMALL


def _raw(reader: StoreReader, statement: SqlStatement, pairs: Pairs, windows: Windows) -> str:
    """A query for the rows `part`, `win` and `v`: group, window and value of each point."""
    start = statement.number(windows.start_ns)
    return (
        f"SELECT pairs.part, (p.time - {start}) / {statement.number(windows.step_ns)} AS win, {_VALUE} AS v, "  # noqa: S608
        f"p.value_double AS d, p.value_int AS i "
        f"FROM ({statement.pairs(pairs)}) AS pairs CROSS JOIN {reader.table('points')} AS p "
        f"WHERE p.series_id = pairs.id AND p.time >= {start} AND p.time < {statement.number(windows.end_ns)} "
        f"AND {_HAS_VALUE[reader.dialect]}"
    )


def _interpolated(rows: Iterable[Sequence[Any]], wanted: Sequence[float]) -> dict[Place, dict[float, float]]:
    """The quantiles from the values at the places around them."""
    values: dict[Place, dict[int, float]] = {}
    sizes: dict[Place, int] = {}
    for part, win, place, value, many in rows:
        values.setdefault((part, win), {})[place] = value
        sizes[part, win] = many
    return {
        key: {quantile: _between(value, quantile * (sizes[key] - 1)) for quantile in wanted}
        for key, value in values.items()
    }


def _between(values: dict[int, float], place: float) -> float:
    low = floor(place)
    below = values[low]
    share = place - low
    return below if not share else below + share * (values[low + 1] - below)
