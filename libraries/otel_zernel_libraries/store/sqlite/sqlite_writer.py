"""The store in SQLite, for the event loop."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from otel_zernel.batch import Batch
from otel_zernel.errors import CannotStart
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.rows.batch_rows import SeriesRemoved, rows_of
from otel_zernel_libraries.store.rows.series_cache import SeriesCache
from otel_zernel_libraries.store.sqlite.failures import breaks_connection, failed_start, failed_write
from otel_zernel_libraries.store.sqlite.file_writer import SqliteFile
from otel_zernel_libraries.store.writer import StoreWriter, WriterOptions, Written

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
