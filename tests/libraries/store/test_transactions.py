"""Transactions in PostgreSQL that are cancelled."""

import asyncio

import asyncpg
import pytest

from otel_zernel_libraries.store.config import StoreConfig
from otel_zernel_libraries.store.postgres.connecting import open_pool
from otel_zernel_libraries.store.postgres.transactions import transaction, writing_connection
from tests.postgres import PostgresServer


async def test_a_cancellation_within_blocks_that_both_break_the_connection_stays_a_cancellation(
    postgres: PostgresServer,
) -> None:
    """Another error in its place would keep a cancelled task alive, and the collector could not stop."""
    settings = StoreConfig(url=postgres.url())
    pool: asyncpg.Pool[asyncpg.Record] = await open_pool(settings.address, settings, "exporters::sql", writable=True)  # type: ignore[arg-type]
    with pytest.raises(asyncio.CancelledError):
        async with writing_connection(pool) as connection, transaction(connection):
            raise asyncio.CancelledError
    async with writing_connection(pool) as connection:
        assert await connection.fetchval("SELECT 1") == 1
    await pool.close()
