"""The store in PostgreSQL, for reading."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import asyncpg

from otel_zernel_libraries.store.address import PostgresAddress
from otel_zernel_libraries.store.config import StoreConfig
from otel_zernel_libraries.store.postgres.connecting import open_pool
from otel_zernel_libraries.store.postgres.failures import translated
from otel_zernel_libraries.store.postgres.schema import version_of
from otel_zernel_libraries.store.postgres.transactions import reading_connection
from otel_zernel_libraries.store.reading import NoTables, StoreReader
from otel_zernel_libraries.store.statement import Dialect


class PostgresReader(StoreReader):
    """Reads from a primary or a standby."""

    dialect: ClassVar[Dialect] = "postgresql"

    def __init__(self, address: PostgresAddress, config: StoreConfig, setting: str) -> None:
        self._address = address
        self._config = config
        self._setting = setting
        self._schema = config.schema_name
        self._pool: asyncpg.Pool[Any] | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        with translated(self._address, setting=self._setting):
            async with reading_connection(await self._opened()) as connection:
                if not await version_of(connection, self._schema):
                    raise NoTables(
                        f"{self._setting}: {self._address} has no tables in the schema {self._schema} yet; "
                        "start a collector with the sql exporter first, or correct schema_name"
                    )

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool:
            pool.terminate()

    async def fetch(self, sql: str, *values: Any) -> list[Sequence[Any]]:
        with translated(self._address):
            async with reading_connection(await self._opened()) as connection:
                rows: list[Sequence[Any]] = await connection.fetch(sql, *values)
                return rows

    def table(self, name: str) -> str:
        return f"{self._schema}.{name}"

    def place(self) -> str:
        """A file of the data, and the start of its server: its files may have come from a backup before."""
        return f", pg_relation_filenode('{self.table('series')}'), extract(epoch FROM pg_postmaster_start_time())"

    async def _opened(self) -> "asyncpg.Pool[Any]":
        async with self._opening:
            self._pool = self._pool or await open_pool(self._address, self._config, self._setting, writable=False)
        return self._pool
