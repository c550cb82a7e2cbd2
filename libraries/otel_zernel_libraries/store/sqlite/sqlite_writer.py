"""The store in SQLite, for the event loop.

Writing to the file blocks, and is done in one thread.
"""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Final, Literal, TypeVar

from otel_zernel.batch import Batch
from otel_zernel.errors import CannotStart
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.exotic import to_sqlite
from otel_zernel_libraries.store.reading import IDENTITY, REMOVALS
from otel_zernel_libraries.store.rows.batch_rows import BatchRows, SeriesRemoved, rows_of
from otel_zernel_libraries.store.rows.points import Row
from otel_zernel_libraries.store.rows.series_cache import SeriesCache, StoredResource, StoredScope, StoredSeries
from otel_zernel_libraries.store.rows.tables import EXEMPLARS, TABLES, WITH_EXEMPLARS, PointTable
from otel_zernel_libraries.store.sqlite.connecting import FileIdentity, file_identity, open_writer, transaction
from otel_zernel_libraries.store.sqlite.failures import breaks_connection, failed_start, failed_write
from otel_zernel_libraries.store.writer import StoreWriter, WriterOptions, Written

_SOME: Final = 1000
"""Series that are looked at in one transaction."""
_COUNT: Final = "INSERT INTO ingest VALUES (?, 1) ON CONFLICT (slot) DO UPDATE SET batches = batches + 1"
_BEGIN: Final = "INSERT INTO ingest VALUES (?, 0), (?, random() >> 2) ON CONFLICT DO NOTHING"
_UNUSED: Final = """
SELECT id FROM (SELECT id FROM series WHERE id > ? ORDER BY id LIMIT ?) AS some
WHERE NOT EXISTS (SELECT 1 FROM points WHERE series_id = some.id)
AND NOT EXISTS (SELECT 1 FROM histograms WHERE series_id = some.id)
AND NOT EXISTS (SELECT 1 FROM exponential_histograms WHERE series_id = some.id)
AND NOT EXISTS (SELECT 1 FROM summaries WHERE series_id = some.id)
"""
_RESOURCES: Final = """
DELETE FROM resources WHERE NOT EXISTS (SELECT 1 FROM series WHERE resource_id = resources.id)
AND NOT EXISTS (SELECT 1 FROM spans WHERE resource_id = resources.id)
"""


def removals(connection: sqlite3.Connection) -> int:
    """A number that changes with each removal of series, and if the table was emptied.

    Writers keep the ids of series as long as it stays the same. Begins the table in the open transaction if necessary.
    """
    select = "SELECT sum(batches) FROM ingest WHERE slot < 0 HAVING count(*) = 2"
    if not (fetchone := connection.execute(select).fetchone()):
        connection.execute(_BEGIN, (REMOVALS, IDENTITY))
        fetchone = connection.execute(select).fetchone()
    return int(fetchone[0])


def count(connection: sqlite3.Connection, slot: int) -> None:
    """Adds 1 to the number of a slot."""
    connection.execute(_COUNT, (slot,))


def remove_series(connection: sqlite3.Connection, after: int) -> int | None:
    """Removes the series without points among the next ones after an id, in the open transaction.

    Returns the id to go on with; None at the end, after it has removed the resources without series.
    """
    last = "SELECT max(id) FROM (SELECT id FROM series WHERE id > ? ORDER BY id LIMIT ?)"
    (end,) = connection.execute(last, (after, _SOME)).fetchone()
    if end is None:
        removed = connection.execute(_RESOURCES).rowcount
    else:
        removed = connection.execute(f"DELETE FROM series WHERE id IN ({_UNUSED})", (after, _SOME)).rowcount  # noqa: S608
    if removed:
        count(connection, REMOVALS)
    return None if end is None else int(end)


_RESOURCE: Final = (
    "INSERT INTO resources (fingerprint, attributes, schema_url, encoded) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_SCOPE: Final = (
    "INSERT INTO scopes (fingerprint, name, version, attributes, schema_url, encoded) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO NOTHING"
)
_SERIES: Final = (
    "INSERT INTO series (fingerprint, resource_id, scope_id, metric, description, unit, type, temporality, monotonic, "
    "attributes, encoded) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_NEW: Final = " AND ".join(
    f"NOT EXISTS (SELECT 1 FROM {table.name} WHERE series_id = ?1 AND time = ?2)"  # noqa: S608
    for table in WITH_EXEMPLARS
)
_EXEMPLARS: Final = (
    f"INSERT INTO exemplars SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 WHERE {_NEW} ON CONFLICT DO NOTHING"
)
_VALUES: Final = 900
"""Values in one statement at most; SQLite before 3.32 allows 999. 128 points at once are 1.5 times as fast as one."""
_PIECE: Final = 5000
"""Rows that are removed in one transaction."""
_PAGES: Final = 250
"""Pages that are given back after each piece: somewhat more than the rows had."""


class SqliteFile:
    """The file, open for writing. Each batch is one transaction."""

    def __init__(self, path: Path, synchronous: Literal["full", "normal"], timeout: float) -> None:
        self._path = path
        self._synchronous: Literal["full", "normal"] = synchronous
        self._timeout = timeout
        self._connection: sqlite3.Connection | None = None
        self._identity: FileIdentity | None = None

    @property
    def is_another(self) -> bool:
        """Whether the path has another file than the opened one, or none: somebody moved or removed it."""
        return self._connection is not None and self._identity != file_identity(self._path)

    def open(self) -> None:
        """Safe to call twice. Raises `sqlite3.Error`, `OSError` or `CannotStart`."""
        if self._connection is None:
            self._connection = open_writer(self._path, self._synchronous, self._timeout)
            self._identity = file_identity(self._path)

    def close(self) -> None:
        """Safe to call twice."""
        connection, self._connection = self._connection, None
        if connection:
            connection.close()

    def write(self, batch: BatchRows) -> Written:
        """Stores a batch, or nothing of it. Gives ids to its series. Raises `sqlite3.Error` or `SeriesRemoved`."""
        written = Written(dropped=batch.dropped)
        if not len(batch):
            return written
        new, resources, scopes = batch.unresolved(), batch.unresolved_resources(), batch.unresolved_scopes()
        try:
            with self._transaction() as connection:
                removed = removals(connection)
                if removed == batch.removals:
                    _identify(connection, new, resources, scopes)
                    _insert_all(connection, batch, written)
                    count(connection, 0)
        except BaseException:
            _forget(new, resources, scopes)
            raise
        batch.check(removed)
        for series in new:
            series.details = None
        return written

    def remove_before(self, time_ns: int) -> int:
        """Removes some old points, and gives their pages back to the disk. 0 if none is left.

        The pieces are small, so that a batch waits for about 50 ms at most. Raises `sqlite3.Error`.
        """
        removed = 0
        with self._transaction() as connection:
            for table in TABLES:
                removed += connection.execute(_removal(table), (time_ns, _PIECE - removed)).rowcount
            if removed:
                count(connection, 0)
        if self._connection:
            self._connection.executescript(f"PRAGMA incremental_vacuum({_PAGES})")  # `execute` frees one page only
        return removed

    def remove_series(self, after: int) -> int | None:
        """Removes some series without points. See `pruning`. Raises `sqlite3.Error`."""
        with self._transaction() as connection:
            return remove_series(connection, after)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self.open()
        connection = self._connection
        assert connection  # noqa: S101  # `open` has set it
        with transaction(connection):
            yield connection


def _identify(
    connection: sqlite3.Connection,
    new: list[StoredSeries],
    resources: list[StoredResource],
    scopes: list[StoredScope],
) -> None:
    """Gives ids to everything that has none."""
    for series in new:
        _resolve(connection, series)
    for resource in resources:
        resource.id = _id(connection, "resources", _RESOURCE, resource.row())
    for scope in scopes:
        scope.id = _id(connection, "scopes", _SCOPE, scope.row())


def _insert_all(connection: sqlite3.Connection, batch: BatchRows, written: Written) -> None:
    """Inserts the rows of all tables, and counts them."""
    for table, rows in batch.tables():
        stored, conflicting = _insert(connection, table, rows)
        if table.name != "exemplars":
            written.add(len(rows), stored, conflicting)


def _resolve(connection: sqlite3.Connection, series: StoredSeries) -> None:
    """Gives ids to a series, its resource and its scope, which are inserted if they are new."""
    details = series.details
    assert details  # noqa: S101  # a series without an id has its details
    if details.resource.id is None:
        details.resource.id = _id(connection, "resources", _RESOURCE, details.resource.row())
    if details.scope.id is None:
        details.scope.id = _id(connection, "scopes", _SCOPE, details.scope.row())
    series.id = _id(connection, "series", _SERIES, details.row(series.fingerprint))


def _id(connection: sqlite3.Connection, table: str, insert: str, row: Row) -> int:
    connection.execute(insert, row)
    select = f"SELECT id FROM {table} WHERE fingerprint = ?"  # noqa: S608  # the names of our tables
    (id_,) = connection.execute(select, row[:1]).fetchone()
    return int(id_)


def _forget(new: list[StoredSeries], resources: list[StoredResource], scopes: list[StoredScope]) -> None:
    """The ids of a transaction that failed."""
    for resource in resources:
        resource.id = None
    for scope in scopes:
        scope.id = None
    for series in new:
        series.id = None
        if series.details:
            series.details.resource.id = series.details.scope.id = None


def _insert(connection: sqlite3.Connection, table: PointTable, rows: list[Row]) -> tuple[int, int]:
    """The numbers of stored rows, and of rows that differ from stored ones with their key."""
    before = connection.total_changes
    encoded = to_sqlite(table, rows)
    if table is EXEMPLARS:
        connection.executemany(_EXEMPLARS, encoded)
        return connection.total_changes - before, 0
    at_once = _VALUES // len(_columns(table))
    end = len(encoded) - len(encoded) % at_once
    for begin in range(0, end, at_once):
        connection.execute(_insertion(table, at_once), [*chain.from_iterable(encoded[begin : begin + at_once])])
    connection.executemany(_insertion(table, 1), encoded[end:])
    stored = connection.total_changes - before
    if stored == len(rows):
        return stored, 0
    differing = _differing(table)
    return stored, sum(connection.execute(differing, row).fetchone()[0] for row in encoded)


def _columns(table: PointTable) -> tuple[str, ...]:
    return (*table.columns, "exotic") if table.doubles else table.columns


@cache
def _removal(table: PointTable) -> str:
    key = ", ".join(table.keys)
    oldest = f"SELECT {key} FROM {table.name} WHERE time < ? LIMIT ?"  # noqa: S608
    return f"DELETE FROM {table.name} WHERE ({key}) IN ({oldest})"  # noqa: S608


@cache
def _insertion(table: PointTable, rows: int) -> str:
    columns = _columns(table)
    marks = ", ".join([f"({', '.join('?' * len(columns))})"] * rows)
    return f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES {marks} ON CONFLICT DO NOTHING"  # noqa: S608


@cache
def _differing(table: PointTable) -> str:
    key = " AND ".join(f"{name} = ?" for name in table.keys)
    values = " AND ".join(f"{name} IS ?" for name in _columns(table)[table.key :])
    return f"SELECT count(*) FROM {table.name} WHERE {key} AND NOT ({values})"  # noqa: S608


T = TypeVar("T")


class SqliteWriter(StoreWriter):
    """Writes to a file, in one thread."""

    pieces = "points"

    def __init__(self, path: Path, config: WritableStoreConfig, options: WriterOptions) -> None:
        self._path = path
        self._options = options
        self._cache = SeriesCache(options.series)
        self._file = SqliteFile(path, config.synchronous, config.connect_timeout)
        self._thread: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        try:
            await run_in_thread(self._file.open, self._in_thread())
        except (sqlite3.Error, OSError) as error:
            raise failed_start(self._options.url_setting, self._path, error) from error

    async def write(self, batch: Batch, now_ns: int) -> Written:
        return await self._work(lambda: self._write(batch, now_ns))

    async def maintain(self, now_ns: int) -> int:
        earliest, removed = self._options.earliest(now_ns), 0
        while earliest and (some := await self._work(lambda: self._file.remove_before(earliest))):
            removed += some
        if removed:
            await self._remove_series()
        return removed

    async def _remove_series(self) -> None:
        after: int | None = 0
        while after is not None:
            after = await self._work(partial(self._file.remove_series, after))

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread:
            await run_in_thread(self._file.close, thread)
            thread.shutdown()

    def _in_thread(self) -> ThreadPoolExecutor:
        self._thread = self._thread or ThreadPoolExecutor(1, "sqlite")
        return self._thread

    async def _work(self, work: Callable[[], T]) -> T:
        try:
            return await run_in_thread(lambda: self._tried(work), self._in_thread())
        except (sqlite3.Error, OSError, CannotStart) as error:
            raise failed_write(self._path, error) from error

    def _tried(self, work: Callable[[], T]) -> T:
        if self._file.is_another:
            self._file.close()
            self._cache.clear()  # its ids are those of the former file
        try:
            return work()
        except (sqlite3.Error, OSError) as error:
            if breaks_connection(error):
                self._file.close()
            raise

    def _write(self, batch: Batch, now_ns: int) -> Written:
        while True:
            rows = rows_of(batch, self._cache, self._options.earliest(now_ns), self._options.latest(now_ns))
            try:
                return self._file.write(rows)
            except SeriesRemoved as error:
                self._cache.clear(error.removals)
