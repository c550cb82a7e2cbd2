"""Reading: the contract of stores that are read, and the batches that were written."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from otel_zernel.batch import Batch
from otel_zernel.errors import CannotStart
from otel_zernel_libraries.store.exotic import from_sqlite
from otel_zernel_libraries.store.rows.assembling import EncodedSeries, assembled
from otel_zernel_libraries.store.rows.points import LATEST_TIME, Row
from otel_zernel_libraries.store.rows.tables import POINT_TABLES, PointTable
from otel_zernel_libraries.store.statement import Dialect, SqlStatement

REMOVALS: Final = -1
"""The slot with the number of removals of series. The slots from 0 on count batches."""
IDENTITY: Final = -2
"""The slot with a random number. Another number means that the tables were emptied or made anew."""
COUNTS: Final = (
    f"SELECT coalesce(sum(batches) FILTER (WHERE slot >= 0), 0), max(batches) FILTER (WHERE slot = {REMOVALS}), "
    f"max(batches) FILTER (WHERE slot = {IDENTITY})"
)
"""The columns of a query for the counts of a store."""


@dataclass(slots=True, frozen=True)
class StoreState:
    """The state of a store at one moment."""

    batches: int
    """Grows with each stored batch, and with each removal of old points."""
    removals: int | None
    """Grows with each removal of series."""
    identity: str
    """Another one after the tables were emptied, made anew, or restored from a backup."""


_PAGE: Final = 5000
"""Points of a batch at most."""


@dataclass(frozen=True, slots=True)
class PointRange:
    """The points of some metrics in some time."""

    start_ns: int = 0
    end_ns: int = LATEST_TIME + 1
    """The first time after the range."""
    metrics: frozenset[str] | None = None
    """Names of metrics; None for all."""


class NoTables(CannotStart):
    """The store has no tables yet: the first exporter that writes to it creates them."""


class StoreReader(ABC):
    """Reads a store. Reading never blocks a writer, and a writer never blocks it. Many reads may run at once."""

    dialect: ClassVar[Dialect]

    @abstractmethod
    async def open(self) -> None:
        """Opens the store. Raises `CannotStart` if a person has to change something, else `Retryable`."""

    @abstractmethod
    async def close(self) -> None:
        """Safe to call twice, and without `open`."""

    @abstractmethod
    async def fetch(self, sql: str, *values: Any) -> list[Sequence[Any]]:
        """The rows of a query in the dialect of the store. Values are `?` in SQLite, and `$1`, `$2` in PostgreSQL.

        Raises `Retryable` if the database does not answer.
        """

    async def state(self) -> StoreState:
        """The state of the store. Costs one short query."""
        ((batches, removals, *identity),) = await self.fetch(f"{COUNTS}{self.place()} FROM {self.table('ingest')}")
        return StoreState(int(batches), removals, " ".join(map(str, identity)))

    def place(self) -> str:
        """Further columns of a query, with the place of the data: another one after a backup was restored."""
        return ""

    @abstractmethod
    def table(self, name: str) -> str:
        """The name of a table in a query, with its schema."""

    def columns(self, table: PointTable) -> tuple[str, ...]:
        """The columns of a query for `points`."""
        return (*table.columns, "exotic") if self.dialect == "sqlite" else table.columns

    async def points(self, table: PointTable, sql: str, statement: SqlStatement) -> list[Row]:
        """The rows of a query for the `columns` of a table. Raises as `fetch`."""
        rows = await self.fetch(sql, *statement.values)
        return [from_sqlite(table, row) if self.dialect == "sqlite" else tuple(row) for row in rows]

    async def read(self, wanted: PointRange | None = None, size: int = _PAGE) -> AsyncIterator[Batch]:
        """The points that were written, exactly, in batches of at most `size`, by series and time.

        Each batch is one short query: points that are written or removed meanwhile may be missing or not.
        """
        wanted = wanted or PointRange()
        for table in POINT_TABLES:
            after = (-1, -1)
            while rows := await self._page(table, wanted, after, size):
                after = (rows[-1][0], rows[-1][1])
                exemplars = await self._exemplars((rows[0][0], rows[0][1]), after)
                series = await self._series(list(dict.fromkeys(row[0] for row in rows)))
                yield assembled(table, [row for row in rows if row[0] in series], exemplars, series)
                if len(rows) < size:
                    break

    async def _page(self, table: PointTable, wanted: PointRange, after: tuple[int, int], size: int) -> list[Row]:
        """At most `size` rows of a table behind a key (series id, time), in the order of the key."""
        statement = SqlStatement(self.dialect)
        number, only = statement.number, ""
        if wanted.metrics:
            metrics = statement.is_among("metric", wanted.metrics, "text")
            only = f"AND series_id IN (SELECT id FROM {self.table('series')} WHERE {metrics}) "  # noqa: S608
        sql = (
            f"SELECT {', '.join(self.columns(table))} FROM {self.table(table.name)} "  # noqa: S608
            f"WHERE (series_id, time) > ({number(after[0])}, {number(after[1])}) AND time >= {number(wanted.start_ns)} "
            f"AND time <= {number(wanted.end_ns - 1)} {only}ORDER BY series_id, time LIMIT {number(size)}"
        )
        return await self.points(table, sql, statement)

    async def _exemplars(self, first: tuple[int, int], last: tuple[int, int]) -> list[Sequence[Any]]:
        """Series id, time and encoding of the exemplars from one key to another, in order."""
        statement = SqlStatement(self.dialect)
        least, most = (", ".join(map(statement.number, key)) for key in (first, last))
        return await self.fetch(
            f"SELECT series_id, time, encoded FROM {self.table('exemplars')} WHERE (series_id, time) >= ({least}) "  # noqa: S608
            f"AND (series_id, time) <= ({most}) ORDER BY series_id, time, position",
            *statement.values,
        )

    async def _series(self, ids: Sequence[int]) -> Mapping[int, EncodedSeries]:
        """The series with these ids."""
        statement = SqlStatement(self.dialect)
        rows = await self.fetch(
            "SELECT s.id, resource_id, scope_id, r.encoded, c.encoded, s.encoded "  # noqa: S608
            f"FROM {self.table('series')} s JOIN {self.table('resources')} r ON r.id = resource_id "
            f"JOIN {self.table('scopes')} c ON c.id = scope_id WHERE {statement.is_among('s.id', ids)}",
            *statement.values,
        )
        return {row[0]: EncodedSeries(*row) for row in rows}
