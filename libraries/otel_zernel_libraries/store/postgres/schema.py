"""The tables in PostgreSQL, and their migrations."""

from typing import TYPE_CHECKING, Any, Final

from otel_zernel.errors import CannotStart
from otel_zernel_libraries.store.postgres.transactions import transaction

if TYPE_CHECKING:
    from asyncpg import Connection

SLOTS: Final = 64
"""Rows of `ingest`. Each connection counts its batches in one, so that writers do not wait for each other."""
_LOCK: Final = 0x6F7A7374
"""The advisory lock of migrations. It ends with its connection."""

_OLDEST: Final = 14
"""The first release that detaches partitions without waiting for readers."""

# Foreign keys of points would cost a look-up for each point, and points are never written without their series.
_V1: Final = """
CREATE TABLE {s}.resources (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fingerprint bytea NOT NULL UNIQUE,
    attributes jsonb NOT NULL, -- for queries
    schema_url text NOT NULL,
    encoded bytea NOT NULL -- the exact ResourceMetrics of OTLP, without metrics
);
CREATE TABLE {s}.scopes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fingerprint bytea NOT NULL UNIQUE,
    name text NOT NULL,
    version text NOT NULL,
    attributes jsonb NOT NULL,
    schema_url text NOT NULL,
    encoded bytea NOT NULL
);
CREATE TABLE {s}.series (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fingerprint bytea NOT NULL UNIQUE,
    resource_id bigint NOT NULL REFERENCES {s}.resources (id),
    scope_id bigint NOT NULL REFERENCES {s}.scopes (id),
    metric text NOT NULL,
    description text NOT NULL,
    unit text NOT NULL,
    type text NOT NULL, -- gauge, sum, histogram, exponential_histogram or summary
    temporality integer, -- OTLP: 1 is delta, 2 is cumulative
    monotonic boolean,
    attributes jsonb NOT NULL,
    encoded bytea NOT NULL
);
CREATE INDEX series_metric ON {s}.series (metric, resource_id);
CREATE INDEX series_resource ON {s}.series (resource_id);
CREATE TABLE {s}.points (
    series_id bigint NOT NULL,
    time bigint NOT NULL, -- ns since 1970, as start
    value_double double precision,
    value_int bigint,
    start bigint,
    flags integer,
    -- The points of a series are far apart in the table. An index with all columns has them together.
    PRIMARY KEY (series_id, time) INCLUDE (value_double, value_int, start, flags)
) PARTITION BY RANGE (time);
CREATE TABLE {s}.histograms (
    series_id bigint NOT NULL,
    time bigint NOT NULL,
    start bigint,
    flags integer,
    count bigint NOT NULL,
    sum double precision,
    min double precision,
    max double precision,
    bounds double precision[] NOT NULL,
    counts bigint[] NOT NULL,
    PRIMARY KEY (series_id, time)
) PARTITION BY RANGE (time);
CREATE TABLE {s}.exponential_histograms (
    series_id bigint NOT NULL,
    time bigint NOT NULL,
    start bigint,
    flags integer,
    count bigint NOT NULL,
    sum double precision,
    min double precision,
    max double precision,
    scale integer NOT NULL,
    zero_count bigint NOT NULL,
    zero_threshold double precision NOT NULL,
    positive_offset integer,
    positive_counts bigint[],
    negative_offset integer,
    negative_counts bigint[],
    PRIMARY KEY (series_id, time)
) PARTITION BY RANGE (time);
CREATE TABLE {s}.summaries (
    series_id bigint NOT NULL,
    time bigint NOT NULL,
    start bigint,
    flags integer,
    count bigint NOT NULL,
    sum double precision NOT NULL,
    quantiles double precision[] NOT NULL,
    quantile_values double precision[] NOT NULL,
    PRIMARY KEY (series_id, time)
) PARTITION BY RANGE (time);
CREATE TABLE {s}.exemplars (
    series_id bigint NOT NULL,
    time bigint NOT NULL, -- of the point
    position smallint NOT NULL,
    exemplar_time bigint NOT NULL,
    value_double double precision,
    value_int bigint,
    trace_id bytea,
    span_id bytea,
    encoded bytea NOT NULL,
    PRIMARY KEY (series_id, time, position)
) PARTITION BY RANGE (time);
CREATE TABLE {s}.spans (
    trace_id bytea NOT NULL,
    time bigint NOT NULL, -- the start
    span_id bytea NOT NULL,
    end_time bigint NOT NULL,
    parent_span_id bytea,
    resource_id bigint NOT NULL,
    scope_id bigint NOT NULL,
    name text NOT NULL,
    kind integer NOT NULL,
    status integer NOT NULL,
    status_message text NOT NULL,
    attributes jsonb NOT NULL,
    events jsonb NOT NULL,
    links jsonb NOT NULL,
    encoded bytea NOT NULL, -- the exact Span of OTLP
    PRIMARY KEY (trace_id, time, span_id)
) PARTITION BY RANGE (time);
CREATE INDEX spans_time ON {s}.spans (time);
CREATE INDEX spans_resource ON {s}.spans (resource_id, time);
CREATE INDEX points_time ON {s}.points (time, series_id);
CREATE INDEX histograms_time ON {s}.histograms (time, series_id);
CREATE INDEX exponential_histograms_time ON {s}.exponential_histograms (time, series_id);
CREATE INDEX summaries_time ON {s}.summaries (time, series_id);
-- Slot -2 has the identity of the store, slot -1 counts the removals of series, the others batches.
CREATE TABLE {s}.ingest (slot integer PRIMARY KEY, batches bigint NOT NULL) WITH (fillfactor = 10);
"""
MIGRATIONS: Final = (_V1,)
"""The statements from each version of the schema to the next. No release has had version 1 yet, so its statements may
change, as long as stores of former commits still work. After the first release, each change is a new version."""
VERSION: Final = len(MIGRATIONS)


async def migrate(connection: "Connection[Any]", schema: str) -> None:
    """Brings the schema to this version. Of several programs, one does it, and the others wait.

    Raises `CannotStart` for an old server or a schema of a newer release, and `asyncpg.PostgresError`.
    """
    if (server := connection.get_server_version()) < (_OLDEST,):
        raise CannotStart(f"PostgreSQL {_OLDEST} or newer is needed, and the server is {server.major}; update it")
    if await version_of(connection, schema) == VERSION:  # without the right to create anything
        return
    async with transaction(connection):
        await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, schema)
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        await connection.execute(f"CREATE TABLE IF NOT EXISTS {schema}.schema_version (version integer NOT NULL)")
        version = await version_of(connection, schema)
        for statements in MIGRATIONS[version:]:
            await connection.execute(statements.format(s=schema))
        if version < VERSION:
            await connection.execute(f"DELETE FROM {schema}.schema_version")  # noqa: S608
            await connection.execute(f"INSERT INTO {schema}.schema_version VALUES ($1)", VERSION)  # noqa: S608


async def version_of(connection: "Connection[Any]", schema: str) -> int:
    """The version of the schema; 0 if it does not exist. Raises as `migrate` does."""
    if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.schema_version") is None:
        return 0
    version = await connection.fetchval(f"SELECT max(version) FROM {schema}.schema_version") or 0  # noqa: S608
    if version > VERSION:
        raise CannotStart(
            f"the schema {schema} has version {version}, and this release knows {VERSION}: "
            "get a newer otel-zernel, or set another schema_name"
        )
    return int(version)
