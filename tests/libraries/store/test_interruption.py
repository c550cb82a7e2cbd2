"""A cancelled query ends: it holds neither a thread nor the connection."""

import asyncio
from pathlib import Path

import pytest

from tests.libraries.store.given import reader, sqlite_config, writer

ENDLESS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) SELECT count(*) FROM numbers"


async def test_cancelled_queries_end_also_those_that_wait_for_a_thread(tmp_path: Path) -> None:
    settings = sqlite_config(tmp_path, synchronous="normal", pool_size=1)
    store = writer(settings)
    await store.open()
    await store.close()
    reading = reader(settings)
    await reading.open()
    try:
        queries = [asyncio.create_task(reading.fetch(ENDLESS)) for _ in range(3)]
        await asyncio.sleep(0.1)
        for query in queries:
            query.cancel()
        for query in queries:
            with pytest.raises(asyncio.CancelledError):
                await query
        assert await reading.fetch("SELECT 1") == [(1,)]
    finally:
        await reading.close()
