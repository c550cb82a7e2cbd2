"""Counts the rows in the store."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import asyncpg

from examples.cluster.services import PASSWORD

_POINTS = "otel_zernel.points"
_SQL = f"SELECT count(*), count(DISTINCT coalesce(value_double, value_int)) FROM {_POINTS}"  # noqa: S608  # a constant


@dataclass(frozen=True)
class Stored:
    """The rows in the store."""

    rows: int
    distinct: int
    """Rows with different values: every row of the example has its own."""

    @property
    def duplicates(self) -> int:
        return self.rows - self.distinct


class Store:
    """Reads the counts. While the store does not answer, the last counts are returned."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._last = Stored(0, 0)

    def count(self) -> Stored:
        """The rows in the store, now or when it answered last."""
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            self._last = asyncio.run(self._read())
        return self._last

    async def _read(self) -> Stored:
        connection = await asyncpg.connect(self._url, password=PASSWORD, timeout=2, statement_cache_size=0)
        try:
            row = await connection.fetchrow(_SQL, timeout=10)
        finally:
            connection.terminate()
        return Stored(*row) if row else self._last
