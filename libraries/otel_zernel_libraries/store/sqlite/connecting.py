"""Connections to the file, its tables, and their migrations."""

import os
import sqlite3
import time
from pathlib import Path
from typing import Final, Literal

from otel_zernel.errors import CannotStart
from otel_zernel_libraries.files.writing import OWNER_AND_GROUP
from otel_zernel_libraries.store.reading import NoTables

APPLICATION_ID: Final = 0x6F7A7374
"""`ozst` in ASCII, in the header of the file: another program's database is refused."""

# Resources, scopes and series never get the id of a deleted row: writers keep ids in memory.
_V1: Final = """
CREATE TABLE resources (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    fingerprint BLOB NOT NULL UNIQUE,
    attributes TEXT NOT NULL, -- JSON, for queries
    schema_url TEXT NOT NULL,
    encoded BLOB NOT NULL -- the exact ResourceMetrics of OTLP, without metrics
) STRICT;
CREATE TABLE scopes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    fingerprint BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    attributes TEXT NOT NULL,
    schema_url TEXT NOT NULL,
    encoded BLOB NOT NULL
) STRICT;
CREATE TABLE series (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    fingerprint BLOB NOT NULL UNIQUE,
    resource_id INTEGER NOT NULL REFERENCES resources (id),
    scope_id INTEGER NOT NULL REFERENCES scopes (id),
    metric TEXT NOT NULL,
    description TEXT NOT NULL,
    unit TEXT NOT NULL,
    type TEXT NOT NULL, -- gauge, sum, histogram, exponential_histogram or summary
    temporality INTEGER, -- OTLP: 1 is delta, 2 is cumulative
    monotonic INTEGER,
    attributes TEXT NOT NULL,
    encoded BLOB NOT NULL
) STRICT;
CREATE INDEX series_metric ON series (metric, resource_id);
CREATE INDEX series_resource ON series (resource_id);
CREATE TABLE points (
    series_id INTEGER NOT NULL,
    time INTEGER NOT NULL, -- ns since 1970, as start
    value_double REAL,
    value_int INTEGER,
    start INTEGER,
    flags INTEGER,
    exotic BLOB, -- doubles that SQLite cannot hold: NaN and -0.0
    PRIMARY KEY (series_id, time)
) STRICT, WITHOUT ROWID;
CREATE TABLE histograms (
    series_id INTEGER NOT NULL,
    time INTEGER NOT NULL,
    start INTEGER,
    flags INTEGER,
    count INTEGER NOT NULL,
    sum REAL,
    min REAL,
    max REAL,
    bounds BLOB NOT NULL, -- little-endian doubles
    counts BLOB NOT NULL, -- little-endian unsigned 64-bit numbers
    exotic BLOB,
    PRIMARY KEY (series_id, time)
) STRICT, WITHOUT ROWID;
CREATE TABLE exponential_histograms (
    series_id INTEGER NOT NULL,
    time INTEGER NOT NULL,
    start INTEGER,
    flags INTEGER,
    count INTEGER NOT NULL,
    sum REAL,
    min REAL,
    max REAL,
    scale INTEGER NOT NULL,
    zero_count INTEGER NOT NULL,
    zero_threshold REAL,
    positive_offset INTEGER,
    positive_counts BLOB,
    negative_offset INTEGER,
    negative_counts BLOB,
    exotic BLOB,
    PRIMARY KEY (series_id, time)
) STRICT, WITHOUT ROWID;
CREATE TABLE summaries (
    series_id INTEGER NOT NULL,
    time INTEGER NOT NULL,
    start INTEGER,
    flags INTEGER,
    count INTEGER NOT NULL,
    sum REAL,
    quantiles BLOB NOT NULL,
    quantile_values BLOB NOT NULL,
    exotic BLOB,
    PRIMARY KEY (series_id, time)
) STRICT, WITHOUT ROWID;
CREATE TABLE exemplars (
    series_id INTEGER NOT NULL,
    time INTEGER NOT NULL, -- of the point
    position INTEGER NOT NULL,
    exemplar_time INTEGER NOT NULL,
    value_double REAL,
    value_int INTEGER,
    trace_id BLOB,
    span_id BLOB,
    encoded BLOB NOT NULL,
    exotic BLOB,
    PRIMARY KEY (series_id, time, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE spans (
    trace_id BLOB NOT NULL,
    time INTEGER NOT NULL, -- the start
    span_id BLOB NOT NULL,
    end_time INTEGER NOT NULL,
    parent_span_id BLOB,
    resource_id INTEGER NOT NULL,
    scope_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind INTEGER NOT NULL,
    status INTEGER NOT NULL,
    status_message TEXT NOT NULL,
    attributes TEXT NOT NULL,
    events TEXT NOT NULL,
    links TEXT NOT NULL,
    encoded BLOB NOT NULL, -- the exact Span of OTLP
    UNIQUE (trace_id, time, span_id)
) STRICT;
CREATE INDEX spans_time ON spans (time);
CREATE INDEX spans_resource ON spans (resource_id, time);
CREATE INDEX points_time ON points (time);
CREATE INDEX histograms_time ON histograms (time);
CREATE INDEX exponential_histograms_time ON exponential_histograms (time);
CREATE INDEX summaries_time ON summaries (time);
CREATE INDEX exemplars_time ON exemplars (time);
-- Slot -2 has the identity of the store, slot -1 counts the removals of series, the others batches.
CREATE TABLE ingest (slot INTEGER PRIMARY KEY, batches INTEGER NOT NULL) STRICT;
"""
MIGRATIONS: Final = (_V1,)
"""The statements from each version of the schema to the next. No release has had version 1 yet, so its statements may
change, as long as stores of former commits still work. After the first release, each change is a new version."""
VERSION: Final = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Brings the file to this version. Of several processes, one does it, and the others wait.

    Raises `CannotStart` for a file of a newer release or of another program.
    """
    connection.execute("BEGIN EXCLUSIVE")
    try:
        version = _checked(connection, path)
        for number, statements in enumerate(MIGRATIONS[version:], version + 1):
            for statement in statements.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


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
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


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
