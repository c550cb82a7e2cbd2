"""Removes the series whose points are all gone.

Writers keep the ids of series in memory. They hold a lock together while they write, and compare the number of removals
with the one that they know; only the removal itself holds the lock alone, for some milliseconds.
"""

from typing import TYPE_CHECKING, Any, Final

from otel_zernel.store.postgres.transactions import transaction

if TYPE_CHECKING:
    from asyncpg import Connection

REMOVALS: Final = -1
"""The slot of `ingest` with the number of removals."""
_LOCK: Final = 0x6F7A7377
_SOME: Final = 500
"""Series that are removed in one transaction."""
_MOST: Final = 100_000
"""Series that are removed in one run."""

# A join would read all points; this looks into the index of each partition once for each series.
_UNUSED_SERIES: Final = """
CASE
    WHEN type IN ('gauge', 'sum') THEN (SELECT 1 FROM {s}.points WHERE series_id = one.id LIMIT 1)
    WHEN type = 'histogram' THEN (SELECT 1 FROM {s}.histograms WHERE series_id = one.id LIMIT 1)
    WHEN type = 'summary' THEN (SELECT 1 FROM {s}.summaries WHERE series_id = one.id LIMIT 1)
    ELSE (SELECT 1 FROM {s}.exponential_histograms WHERE series_id = one.id LIMIT 1)
END IS NULL
"""
_UNUSED_RESOURCES: Final = """
(SELECT 1 FROM {s}.series WHERE resource_id = one.id LIMIT 1) IS NULL
AND (SELECT 1 FROM {s}.spans WHERE resource_id = one.id LIMIT 1) IS NULL
"""


async def removals(connection: "Connection[Any]", schema: str) -> int:
    """The number of removals so far. None follows before the transaction ends."""
    await connection.execute("SELECT pg_advisory_xact_lock_shared($1, hashtext($2))", _LOCK, schema)
    return int(await connection.fetchval(f"SELECT batches FROM {schema}.ingest WHERE slot = {REMOVALS}"))  # noqa: S608


async def remove_series(connection: "Connection[Any]", schema: str) -> int:
    """Removes series without points, and resources without series and spans. Returns the number of both."""
    removed = await _remove_all(connection, schema, "series", _UNUSED_SERIES.format(s=schema))
    return removed + await _remove_all(connection, schema, "resources", _UNUSED_RESOURCES.format(s=schema))


async def _remove_all(connection: "Connection[Any]", schema: str, table: str, unused: str) -> int:
    found = await connection.fetch(f"SELECT id FROM {schema}.{table} AS one WHERE {unused} LIMIT {_MOST}")  # noqa: S608
    ids, removed = [row[0] for row in found], 0
    for begin in range(0, len(ids), _SOME):
        removed += await _remove(connection, schema, f"{table} AS one WHERE id = ANY($1) AND {unused}", ids[begin:])
    return removed


async def _remove(connection: "Connection[Any]", schema: str, which: str, ids: list[int]) -> int:
    async with transaction(connection):
        await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, schema)
        deleted = await connection.execute(f"DELETE FROM {schema}.{which}", ids[:_SOME])  # noqa: S608
        if removed := int(deleted.split()[-1]):
            await connection.execute(f"UPDATE {schema}.ingest SET batches = batches + 1 WHERE slot = {REMOVALS}")  # noqa: S608
    return removed
