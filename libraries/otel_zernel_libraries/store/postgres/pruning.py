"""Removes the series whose points are all gone.

Writers keep the ids of series in memory. They hold a lock together while they write, and compare the number of removals
with the one that they know; only the removal itself holds the lock alone, for some milliseconds.
"""

from typing import TYPE_CHECKING, Any, Final

from otel_zernel_libraries.store.postgres.transactions import transaction
from otel_zernel_libraries.store.reading import IDENTITY, REMOVALS

if TYPE_CHECKING:
    from asyncpg import Connection

_LOCK: Final = 0x6F7A7377
_SOME: Final = 500
"""Series that are removed in one transaction."""
_MOST: Final = 100_000
"""Series that are removed in one run."""

_BEGIN: Final = f"""
INSERT INTO {{s}}.ingest VALUES ({IDENTITY}, (random() * 2e18)::bigint), ({REMOVALS}, 0) ON CONFLICT DO NOTHING
"""  # noqa: S608  # the numbers of slots

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
    """A number that changes with each removal of series, and if the table `ingest` was emptied.

    No removal follows before the transaction ends. Begins the table if necessary.
    """
    await connection.execute("SELECT pg_advisory_xact_lock_shared($1, hashtext($2))", _LOCK, schema)
    select = f"SELECT sum(batches) FROM {schema}.ingest WHERE slot < 0 HAVING count(*) = 2"  # noqa: S608
    if (found := await connection.fetchval(select)) is None:
        await connection.execute(_BEGIN.format(s=schema))
        found = await connection.fetchval(select)
    return int(found)


async def count(connection: "Connection[Any]", schema: str, slot: int) -> None:
    """Adds 1 to the number of a slot. Its row is locked until the transaction ends: call it last."""
    await connection.execute(
        f"INSERT INTO {schema}.ingest AS known VALUES ($1, 1) "  # noqa: S608
        "ON CONFLICT (slot) DO UPDATE SET batches = known.batches + 1",
        slot,
    )


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
            await count(connection, schema, REMOVALS)
    return removed
