"""Connections to the file, its tables, and their migrations."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from otel_zernel.errors import CannotStart
from otel_zernel_libraries.files.writing import OWNER_AND_GROUP
from otel_zernel_libraries.store.reading import NoTables
from otel_zernel_libraries.store.schema import statements_by_version


@contextmanager
def transaction(
    connection: sqlite3.Connection, lock: Literal["IMMEDIATE", "EXCLUSIVE"] = "IMMEDIATE"
) -> Iterator[None]:
    """One transaction: what it writes is in the file at the exit. An error undoes it."""
    connection.execute(f"BEGIN {lock}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


APPLICATION_ID: Final = 0x6F7A7374
"""`ozst` in ASCII, in the header of the file: another program's database is refused."""

_STRICT: Final = " STRICT"
_BY_SERIES: Final = f"{_STRICT}, WITHOUT ROWID"
_WORDS: Final = {
    "schema": "",
    "id": "INTEGER PRIMARY KEY AUTOINCREMENT",
    **dict.fromkeys(("int", "int32", "small", "bool", "slot"), "INTEGER"),
    **dict.fromkeys(("double", "present"), "REAL"),
    "bytes": "BLOB",
    "json": "TEXT",
    **dict.fromkeys(("doubles", "ints"), "BLOB"),  # little-endian, the numbers unsigned
    "covering": "",
    "time_key": "time",
    "span_key": "UNIQUE",
    "exotic": "\n    exotic BLOB, -- doubles that SQLite cannot hold: NaN and -0.0",
    "strict": _STRICT,
    "by_time": _BY_SERIES,
    "spans_by_time": _STRICT,
    "counting": _STRICT,
}
MIGRATIONS: Final = tuple(
    f"{statements}CREATE INDEX exemplars_time ON exemplars (time);\n" for statements in statements_by_version(_WORDS)
)
VERSION: Final = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Brings the file to this version. Of several processes, one does it, and the others wait.

    Raises `CannotStart` for a file of a newer release or of another program.
    """
    with transaction(connection, "EXCLUSIVE"):
        version = _checked(connection, path)
        for number, statements in enumerate(MIGRATIONS[version:], version + 1):
            for statement in statements.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def check(connection: sqlite3.Connection, path: str) -> int:
    """The version of the schema in the file; 0 for an empty file. Raises as `migrate` does."""
    connection.execute("BEGIN")  # all three values are of one moment
    try:
        return _checked(connection, path)
    finally:
        if connection.in_transaction:  # some errors have ended it
            connection.execute("ROLLBACK")


def _checked(connection: sqlite3.Connection, path: str) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise CannotStart(f"{path} is the database of another program; choose another path")
    if version > VERSION:
        raise CannotStart(
            f"{path} has version {version} of the schema, and this release knows {VERSION}: "
            "get a newer otel-zernel, or choose another path"
        )
    return int(version)


_CACHE_KIB: Final = 64 * 1024
"""Memory for pages of a writer: 1.5 times as fast as the default of 2 MiB once the file is larger."""
_CHECKPOINT_PAGES: Final = 4000
"""16 MiB of the write-ahead log are moved into the file at once."""
_LOG_BYTES: Final = 64 << 20
"""A log that a long read has let grow is cut to this size afterwards."""
_OLDEST: Final = (3, 37, 0)
"""The first release with STRICT tables, of November 2021."""
FileIdentity = tuple[int, int]


def file_identity(path: Path) -> FileIdentity | None:
    """The device and the inode of a file; None if it is not there."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def open_writer(path: Path, synchronous: Literal["full", "normal"], timeout: float) -> sqlite3.Connection:
    """A connection to the file, which is created or migrated. `timeout` is the wait in seconds for other writers.

    Raises `sqlite3.Error`, `OSError` or `CannotStart`.
    """
    if sqlite3.sqlite_version_info < _OLDEST:
        raise CannotStart(
            f"SQLite 3.37 or newer is needed, and this Python has {sqlite3.sqlite_version}; "
            "use another Python, or PostgreSQL"
        )
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, int(OWNER_AND_GROUP, 8)))
    end = time.monotonic() + timeout
    while True:
        try:
            return _opened(path, synchronous, timeout)
        except sqlite3.OperationalError as error:  # SQLite does not always wait when another process begins the log
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _opened(path: Path, synchronous: Literal["full", "normal"], timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        check(connection, str(path))
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # works in an empty file only
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise CannotStart(f"{path} cannot have a write-ahead log; choose a path on a local disk")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        migrate(connection, str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path, timeout: float) -> sqlite3.Connection:
    """A connection that cannot write, to a file that exists. Raises `sqlite3.Error` or `CannotStart`."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        if not check(connection, str(path)):
            raise NoTables(f"{path} has no tables yet; start a collector with the sql exporter first")
    except BaseException:
        connection.close()
        raise
    return connection
