"""Aggregates of histograms and summaries: the increase of each series, added up, and the quantiles of the sum."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    SummaryDataPoint,
)

from otel_zernel.errors import ZernelError
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.histograms.amounts import Amount, MalformedAmount, NotComparable
from otel_zernel_libraries.histograms.quantiles import histogram_quantiles
from otel_zernel_libraries.histograms.temporality.track import Track, amount_of
from otel_zernel_libraries.store.queries.cells import Cell, Place
from otel_zernel_libraries.store.queries.numbers import Pairs, Windows
from otel_zernel_libraries.store.reading import StoreReader
from otel_zernel_libraries.store.rows.assembling import FILL
from otel_zernel_libraries.store.rows.points import Row
from otel_zernel_libraries.store.rows.tables import EXPONENTIAL, HISTOGRAMS, SUMMARIES, PointTable
from otel_zernel_libraries.store.statement import SqlStatement

_PIECE: Final = 2000
"""Rows of one query."""
_NO_VALUE: Final = 1
"""OTLP's flag NO_RECORDED_VALUE."""


class TooManyPoints(ZernelError):
    """An aggregation would read more points than it may."""


_POINTS: Final[Mapping[str, tuple[PointTable, type[Any]]]] = {
    "histogram": (HISTOGRAMS, HistogramDataPoint),
    "exponential_histogram": (EXPONENTIAL, ExponentialHistogramDataPoint),
    "summary": (SUMMARIES, SummaryDataPoint),
}


async def aggregated_distributions(
    reader: StoreReader, kind: str, pairs: Pairs, deltas: frozenset[int], windows: Windows, most: int
) -> dict[Place, Any]:
    """The sum of the increases as a point of its kind, for each group and window.

    `deltas` are the series whose points are increases already. Reads `most` points at most: raises `TooManyPoints`.
    """
    adding = Adding(kind, dict(pairs), deltas, windows)
    read = 0
    async for rows in _pages(reader, _POINTS[kind][0], [entry for entry, _ in pairs], windows):
        read += len(rows)
        if read > most:
            raise TooManyPoints(f"the answer needs more than {most} histograms; ask for a shorter time or fewer series")
        await run_in_thread(lambda rows=rows: adding.add(rows))  # type: ignore[misc]
    return adding.points()


class Adding:
    """Adds up rows that come by series and time."""

    def __init__(self, kind: str, parts: Mapping[int, int], deltas: frozenset[int], windows: Windows) -> None:
        self._table, self._point = _POINTS[kind]
        self._parts = parts
        self._deltas = deltas
        self._windows = windows
        self._series: int | None = None
        self._before: Track | None = None
        """The row before, of `_series`."""
        self._sums: dict[Place, Amount] = {}

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if row[3] and row[3] & _NO_VALUE:
                continue
            point = self._point()
            FILL[self._table.name](point, row)
            try:
                amount = amount_of(point)
            except MalformedAmount:
                continue
            self._add(row, amount)

    def _add(self, row: Row, amount: Amount) -> None:
        series, time, start = row[0], row[1], row[2] or 0
        if series != self._series:
            self._series = series
            self._before = None
        increase = amount if series in self._deltas else self._increase(start, amount)
        self._before = Track(amount, start, time)
        if increase is None or time < self._windows.start_ns:
            return
        place = self._parts[series], (time - self._windows.start_ns) // self._windows.step_ns
        known = self._sums.get(place)
        self._sums[place] = increase if known is None else known.plus(increase) or known

    def _increase(self, start: int, amount: Amount) -> Amount | None:
        """What the point adds; None if it is unknown, as for a first point that began before the windows."""
        if self._before is None:
            return amount if start >= self._windows.start_ns else None
        try:
            increase = self._before.increase(amount, start)
        except NotComparable:
            return None
        return amount if increase is None else increase

    def points(self) -> dict[Place, Any]:
        """The sums, as points of OTLP."""
        amounts = {}
        for place, amount in self._sums.items():
            amounts[place] = self._point()
            amount.write(amounts[place])
        return amounts


def cell_of(point: Any, quantiles: Sequence[float]) -> Cell:
    """The aggregates of a sum. A summary has no minimum, maximum and quantiles."""
    if isinstance(point, SummaryDataPoint):
        return Cell(point.count, point.sum)
    values = histogram_quantiles(point, quantiles)
    return Cell(
        point.count,
        point.sum if point.HasField("sum") else None,
        point.min if point.HasField("min") else None,
        point.max if point.HasField("max") else None,
        dict(zip(quantiles, values, strict=False)),
    )


async def _pages(
    reader: StoreReader, table: PointTable, ids: Sequence[int], windows: Windows
) -> AsyncIterator[list[Row]]:
    """The rows of the windows, and for each series the one before them, by series and time."""
    after = (-1, 0)
    while True:
        statement = SqlStatement(reader.dialect)
        start, name = statement.number(windows.start_ns), reader.table(table.name)
        sql = (
            f"WITH wanted AS (SELECT id, coalesce((SELECT max(q.time) FROM {name} AS q "  # noqa: S608
            f"WHERE q.series_id = ids.id AND q.time < {start} AND coalesce(q.flags, 0) & {_NO_VALUE} = 0), {start}) "
            f"AS since FROM ({statement.ids(ids)}) AS ids) "
            f"SELECT {', '.join(f'p.{column}' for column in reader.columns(table))} FROM wanted CROSS JOIN {name} AS p "
            f"WHERE p.series_id = wanted.id AND p.time >= wanted.since AND p.time < {statement.number(windows.end_ns)} "
            f"AND (p.series_id, p.time) > ({statement.number(after[0])}, {statement.number(after[1])}) "
            f"ORDER BY p.series_id, p.time LIMIT {_PIECE}"
        )
        rows = await reader.points(table, sql, statement)
        if rows:
            after = (rows[-1][0], rows[-1][1])
            yield rows
        if len(rows) < _PIECE:
            return
        ids = [id_ for id_ in ids if id_ >= after[0]]
