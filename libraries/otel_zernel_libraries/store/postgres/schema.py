"""The tables in PostgreSQL, and their migrations."""

from typing import TYPE_CHECKING, Any, Final

from otel_zernel.errors import CannotStart
from otel_zernel_libraries.store.postgres.transactions import transaction
from otel_zernel_libraries.store.schema import statements_by_version

if TYPE_CHECKING:
    from asyncpg import Connection

SLOTS: Final = 64
"""Rows of `ingest`. Each connection counts its batches in one, so that writers do not wait for each other."""
_LOCK: Final = 0x6F7A7374
"""The advisory lock of migrations. It ends with its connection."""

_OLDEST: Final = 14
"""The first release that detaches partitions without waiting for readers."""

# Foreign keys of points would cost a look-up for each point, and points are never written without their series.
_PARTITIONED: Final = " PARTITION BY RANGE (time)"
_WORDS: Final = {
    "id": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "int": "bigint",
    "int32": "integer",
    "small": "smallint",
    "bool": "boolean",
    "double": "double precision",
    "present": "double precision NOT NULL",
    "bytes": "bytea",
    "json": "jsonb",
    "doubles": "double precision[]",
    "ints": "bigint[]",
    "slot": "integer",
    # The points of a series are far apart in the table. An index with all columns has them together.
    "covering": " INCLUDE (value_double, value_int, start, flags)",
    "time_key": "time, series_id",
    "span_key": "PRIMARY KEY",
    "exotic": "",
    "strict": "",
    "by_time": _PARTITIONED,
    "spans_by_time": _PARTITIONED,
    "counting": " WITH (fillfactor = 10)",
}
VERSION: Final = len(statements_by_version({**_WORDS, "schema": ""}))


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
        for statements in statements_by_version({**_WORDS, "schema": f"{schema}."})[version:]:
            await connection.execute(statements)
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
