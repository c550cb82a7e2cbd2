"""Reading: the contract of stores that are read, and the batches that were written."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from otel_zernel.batch import Batch
from otel_zernel.errors import CannotStart
from otel_zernel_libraries.store.ingest import COUNTS, StoreState
from otel_zernel_libraries.store.rows.assembling import EncodedSeries, assembled
from otel_zernel_libraries.store.rows.integers import LATEST_TIME
from otel_zernel_libraries.store.rows.points import Row
from otel_zernel_libraries.store.rows.tables import POINT_TABLES, PointTable

Dialect = Literal["sqlite", "postgresql"]
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

    @abstractmethod
    async def page(self, table: PointTable, wanted: PointRange, after: tuple[int, int], size: int) -> list[Row]:
        """At most `size` rows of a table behind a key (series id, time), in the order of the key."""

    @abstractmethod
    async def exemplars(self, first: tuple[int, int], last: tuple[int, int]) -> list[Sequence[Any]]:
        """Series id, time and encoding of the exemplars from one key to another, in order."""

    @abstractmethod
    async def encoded_series(self, ids: Sequence[int]) -> Mapping[int, EncodedSeries]:
        """The series with these ids."""

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

    async def read(self, wanted: PointRange | None = None, size: int = _PAGE) -> AsyncIterator[Batch]:
        """The points that were written, exactly, in batches of at most `size`, by series and time.

        Each batch is one short query: points that are written or removed meanwhile may be missing or not.
        """
        wanted = wanted or PointRange()
        for table in POINT_TABLES:
            after = (-1, -1)
            while rows := await self.page(table, wanted, after, size):
                after = (rows[-1][0], rows[-1][1])
                exemplars = await self.exemplars((rows[0][0], rows[0][1]), after)
                series = await self.encoded_series(list(dict.fromkeys(row[0] for row in rows)))
                yield assembled(table, [row for row in rows if row[0] in series], exemplars, series)
                if len(rows) < size:
                    break
