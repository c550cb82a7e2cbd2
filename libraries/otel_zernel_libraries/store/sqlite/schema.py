"""The tables in SQLite, and their migrations."""

import sqlite3
from typing import Final

from otel_zernel.errors import CannotStart

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
