"""The store in PostgreSQL, for writing."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asyncpg

from otel_zernel.batch import Batch
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.store.address import PostgresAddress
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.postgres.connecting import close_pool, open_pool
from otel_zernel_libraries.store.postgres.failures import AGAIN, STALE, translated
from otel_zernel_libraries.store.postgres.insertion import insert, resolve
from otel_zernel_libraries.store.postgres.partitions import Partitions
from otel_zernel_libraries.store.postgres.schema import SLOTS, migrate
from otel_zernel_libraries.store.postgres.transactions import break_off, transaction, writing_connection
from otel_zernel_libraries.store.reading import IDENTITY, REMOVALS
from otel_zernel_libraries.store.rows.batch_rows import BatchRows, SeriesRemoved, rows_of
from otel_zernel_libraries.store.rows.points import Row
from otel_zernel_libraries.store.rows.series_cache import SeriesCache
from otel_zernel_libraries.store.rows.tables import POINTS, TABLES, PointTable
from otel_zernel_libraries.store.writer import StoreWriter, WriterOptions, Written

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
    if (fetchval := await connection.fetchval(select)) is None:
        await connection.execute(_BEGIN.format(s=schema))
        fetchval = await connection.fetchval(select)
    return int(fetchval)


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
    fetch = await connection.fetch(f"SELECT id FROM {schema}.{table} AS one WHERE {unused} LIMIT {_MOST}")  # noqa: S608
    ids, removed = [row[0] for row in fetch], 0
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


_ATTEMPTS: Final = 5
_AHEAD: Final = 2
"""Periods after the current one whose partitions are made ahead."""
_DROPPING: Final = 0x6F7A7376
"""The advisory lock of those who drop partitions."""
T = TypeVar("T")


class PostgresWriter(StoreWriter):
    """Writes with as many connections as there are batches at once, `pool_size` at most."""

    pieces = "partitions"

    def __init__(self, address: PostgresAddress, config: WritableStoreConfig, options: WriterOptions) -> None:
        self._address = address
        self._config = config
        self._options = options
        self._setting = options.url_setting
        self._schema = config.schema_name
        self._cache = SeriesCache(options.series)
        self._partitions = Partitions(self._schema, options.partition_ns, options.most_partitions)
        self._pool: asyncpg.Pool[Any] | None = None
        self._opening = asyncio.Lock()
        self._thread: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        with translated(self._address, setting=self._setting):
            await self._opened()

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        thread, self._thread = self._thread, None
        if pool:
            await close_pool(pool)
        if thread:
            thread.shutdown()

    async def write(self, batch: Batch, now_ns: int) -> Written:
        with translated(self._address):
            pool = await self._opened()
            for _ in range(_ATTEMPTS - 1):
                try:
                    return await self._store(pool, await self._in_thread(lambda: self._rows(batch, now_ns)))
                except SeriesRemoved as error:
                    await self._in_thread(partial(self._cache.clear, error.removals))
                except asyncpg.PostgresError as error:
                    if error.sqlstate in STALE:
                        await self._start_anew(pool)
                    if error.sqlstate not in AGAIN:
                        raise
                    self._partitions.forget()
            return await self._store(pool, await self._in_thread(lambda: self._rows(batch, now_ns)))

    async def _start_anew(self, pool: "asyncpg.Pool[Any]") -> None:
        """Forgets everything about the tables, which somebody dropped or emptied."""
        self._partitions.forget()
        await self._in_thread(self._cache.clear)
        pool.terminate()
        if self._pool is pool:
            self._pool = None

    async def maintain(self, now_ns: int) -> int:
        with translated(self._address):
            pool = await self._opened()
            async with writing_connection(pool) as connection:
                await self._prepare(connection, now_ns)
                earliest = self._options.earliest(now_ns)
                return await self._drop(connection, earliest) if earliest else 0

    async def _prepare(self, connection: Any, now_ns: int) -> None:
        """Makes the partitions of the next periods, of the tables that are in use."""
        (now,) = self._partitions.periods([now_ns])
        for table in TABLES:
            coming = self._partitions.missing(table.name, range(now, now + 1 + _AHEAD))
            if coming and (table is POINTS or await self._partitions.existing(connection, table.name)):
                await self._partitions.create(connection, table.name, coming)

    async def _drop(self, connection: Any, earliest: int) -> int:
        """Drops old partitions, unless another collector does."""
        if not await connection.fetchval("SELECT pg_try_advisory_lock($1, hashtext($2))", _DROPPING, self._schema):
            return 0
        try:
            dropped = [await self._partitions.drop_before(connection, table.name, earliest) for table in TABLES]
        except BaseException:
            break_off(connection)  # the server frees the lock, also if it does not answer now
            raise
        await connection.execute("SELECT pg_advisory_unlock($1, hashtext($2))", _DROPPING, self._schema)
        if any(dropped):
            await remove_series(connection, self._schema)
            await count(connection, self._schema, _slot(connection))
        return sum(dropped)

    async def _opened(self) -> "asyncpg.Pool[Any]":
        async with self._opening:
            if self._pool is None:
                pool = await open_pool(self._address, self._config, self._setting, writable=True)
                try:
                    async with writing_connection(pool) as connection:
                        await migrate(connection, self._schema)
                except BaseException:
                    pool.terminate()
                    raise
                self._pool = pool
        return self._pool

    async def _store(self, pool: "asyncpg.Pool[Any]", batch: BatchRows) -> Written:
        if not len(batch):
            return Written(dropped=batch.dropped)
        async with writing_connection(pool) as connection:
            await resolve(connection, self._schema, batch)
            await self._partition(connection, batch)
            tables = await self._in_thread(lambda: list(batch.tables()))
            written = Written(dropped=batch.dropped)
            async with transaction(connection):
                removed = await removals(connection, self._schema)
                if removed == batch.removals:
                    await self._insert(connection, tables, written)
            batch.check(removed)
            return written

    async def _insert(self, connection: Any, tables: Iterable[tuple[PointTable, list[Row]]], written: Written) -> None:
        """Inserts the rows of all tables, and counts them."""
        for table, rows in tables:
            stored, conflicting = await insert(connection, self._schema, table, rows)
            if table.name != "exemplars":
                written.add(len(rows), stored, conflicting)
        await count(connection, self._schema, _slot(connection))

    async def _partition(self, connection: Any, batch: BatchRows) -> None:
        """Makes the missing partitions of a batch."""
        refused: set[int] = set()
        for table, rows in batch.rows.items():
            periods = self._partitions.periods(row[1] for row in rows)
            if missing := self._partitions.missing(table, periods):
                refused.update(await self._partitions.create(connection, table, missing))
        if refused:
            batch.leave_out("too_many_partitions", lambda time: self._partitions.period(time) in refused)

    def _rows(self, batch: Batch, now_ns: int) -> BatchRows:
        return rows_of(batch, self._cache, self._options.earliest(now_ns), self._options.latest(now_ns))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        self._thread = self._thread or ThreadPoolExecutor(1, "sql")
        return await run_in_thread(work, self._thread)


def _slot(connection: Any) -> int:
    """The slot in which a connection counts its batches."""
    return int(connection.get_server_pid()) % SLOTS
