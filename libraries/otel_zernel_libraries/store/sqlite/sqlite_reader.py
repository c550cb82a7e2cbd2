"""Reading from the file, for the event loop."""

import asyncio
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock
from typing import Any, ClassVar, Final

from otel_zernel.errors import Retryable
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.store.config import StoreConfig
from otel_zernel_libraries.store.reading import NoTables, StoreReader, StoreState
from otel_zernel_libraries.store.sqlite.connecting import FileIdentity, file_identity, open_reader
from otel_zernel_libraries.store.sqlite.failures import failed_start, sqlite_cause
from otel_zernel_libraries.store.statement import Dialect

_STEPS: Final = 100_000
"""Steps of a query, of about 1 ms, after which it looks for an interruption."""


class RunningQuery:
    """Runs once. An interruption before its start prevents it, and never meets a later query of the connection.

    `Connection.interrupt` would do nothing in the moment before SQLite begins, and the query would run to its end.
    """

    def __init__(self, sql: str, values: Sequence[Any]) -> None:
        self._sql = sql
        self._values = values
        self._interrupted = Event()

    def interrupt(self) -> None:
        """Ends the query soon, from any thread."""
        self._interrupted.set()

    def rows(self, connection: sqlite3.Connection) -> list[Sequence[Any]]:
        """All rows. Raises `sqlite3.Error`, also after an interruption."""
        if self._interrupted.is_set():
            raise sqlite3.OperationalError("interrupted")
        connection.set_progress_handler(self._interrupted.is_set, _STEPS)
        try:
            return connection.execute(self._sql, self._values).fetchall()
        finally:
            connection.set_progress_handler(None, 0)


class SqliteReader(StoreReader):
    """Reads a file with as many connections as it needs at once, `pool_size` at most."""

    dialect: ClassVar[Dialect] = "sqlite"

    def __init__(self, path: Path, config: StoreConfig, setting: str) -> None:
        self._path = path
        self._setting = setting
        self._size = config.pool_size
        self._timeout = config.connect_timeout
        self._threads: ThreadPoolExecutor | None = None
        self._idle: list[sqlite3.Connection] = []
        self._identity: FileIdentity | None = None
        """The file of the idle connections."""
        self._running: set[RunningQuery] = set()
        self._lock = Lock()

    async def open(self) -> None:
        self._threads = self._threads or ThreadPoolExecutor(self._size, "sqlite-reader")
        try:
            await run_in_thread(lambda: self._give_back(*self._connection()), self._threads)
        except sqlite3.Error as error:
            if not self._path.exists():
                raise NoTables(
                    f"{self._setting}: {self._path} does not exist yet; start a collector with the sql exporter first"
                ) from error
            raise failed_start(self._setting, self._path, error) from error

    async def close(self) -> None:
        """Interrupts the queries that run."""
        threads, self._threads = self._threads, None
        for query in self._running:
            query.interrupt()
        if threads:
            await asyncio.to_thread(threads.shutdown)
        self._close_idle()

    async def fetch(self, sql: str, *values: Any) -> list[Sequence[Any]]:
        query = RunningQuery(sql, values)
        self._running.add(query)
        try:
            return await run_in_thread(lambda: self._fetch(query), self._threads, query.interrupt)
        except sqlite3.Error as error:
            raise Retryable(f"cannot read {self._path}: {sqlite_cause(error)}") from error
        finally:
            self._running.discard(query)

    def table(self, name: str) -> str:
        return name

    async def state(self) -> StoreState:
        state_ = await super().state()
        return replace(state_, identity=f"{state_.identity} {self._identity}")

    def _fetch(self, query: RunningQuery) -> list[Sequence[Any]]:
        identity, connection = self._connection()
        try:
            return query.rows(connection)
        finally:
            self._give_back(identity, connection)

    def _connection(self) -> tuple[FileIdentity | None, sqlite3.Connection]:
        """An idle connection, or a new one, and its file. Those of a file that was moved or removed are closed."""
        with self._lock:
            if self._identity != (identity := file_identity(self._path)):
                self._close_idle()
                self._identity = identity
            if self._idle:
                return identity, self._idle.pop()
        return identity, open_reader(self._path, self._timeout)

    def _give_back(self, identity: FileIdentity | None, connection: sqlite3.Connection) -> None:
        with self._lock:
            if identity == self._identity:
                self._idle.append(connection)
            else:
                connection.close()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
