"""The ids of resources, scopes and series, which are inserted if they are new."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from otel_zernel_libraries.store.rows.batch_rows import BatchRows
from otel_zernel_libraries.store.rows.stored import SeriesDetails, StoredResource, StoredScope, StoredSeries

if TYPE_CHECKING:
    from asyncpg import Connection


class _Identified(Protocol):
    fingerprint: bytes
    id: int | None


T = TypeVar("T", bound=_Identified)

_RESOURCES: Final = """
INSERT INTO {s}.resources (fingerprint, attributes, schema_url, encoded)
SELECT f, a::jsonb, u, e FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bytea[]) AS g (f, a, u, e)
ON CONFLICT DO NOTHING
"""
_SCOPES: Final = """
INSERT INTO {s}.scopes (fingerprint, name, version, attributes, schema_url, encoded)
SELECT f, n, v, a::jsonb, u, e
FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[]) AS g (f, n, v, a, u, e)
ON CONFLICT DO NOTHING
"""
_SERIES: Final = """
INSERT INTO {s}.series (fingerprint, resource_id, scope_id, metric, description, unit, type, temporality, monotonic,
                        attributes, encoded)
SELECT f, r, c, m, d, u, t, te, mo, a::jsonb, e
FROM unnest($1::bytea[], $2::int8[], $3::int8[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int4[],
            $9::bool[], $10::text[], $11::bytea[]) AS g (f, r, c, m, d, u, t, te, mo, a, e)
ON CONFLICT DO NOTHING
"""
_SOME: Final = 2000
"""Series in one statement at most."""


async def resolve(connection: "Connection[Any]", schema: str, batch: BatchRows) -> None:
    """Gives ids to all series, resources and scopes of a batch.

    Their rows are committed first: no transaction with points waits for another's series.
    """
    await _identify(connection, schema, "resources", _RESOURCES, batch.unresolved_resources(), _resource)
    await _identify(connection, schema, "scopes", _SCOPES, batch.unresolved_scopes(), _scope)
    series = batch.unresolved()
    for begin in range(0, len(series), _SOME):
        await _resolve(connection, schema, [one for one in series[begin : begin + _SOME] if one.id is None])


async def _resolve(connection: "Connection[Any]", schema: str, series: list[StoredSeries]) -> None:
    details = {one: one.details for one in series if one.details}
    resources = {one.resource for one in details.values() if one.resource.id is None}
    scopes = {one.scope for one in details.values() if one.scope.id is None}
    await _identify(connection, schema, "resources", _RESOURCES, resources, _resource)
    await _identify(connection, schema, "scopes", _SCOPES, scopes, _scope)
    await _identify(connection, schema, "series", _SERIES, details, lambda one: _series(one, details[one]))
    for one in details:
        one.details = None


async def _identify(
    connection: "Connection[Any]",
    schema: str,
    table: str,
    insertion: str,
    found: Iterable[T],
    row: Callable[[T], Sequence[Any]],
) -> None:
    ordered = sorted(found, key=lambda one: one.fingerprint)  # two writers cannot wait for each other in a circle
    if not ordered:
        return
    columns = [list(column) for column in zip(*map(row, ordered), strict=True)]
    await connection.execute(insertion.format(s=schema), *columns)
    select = f"SELECT fingerprint, id FROM {schema}.{table} WHERE fingerprint = ANY($1::bytea[])"  # noqa: S608
    ids = dict(await connection.fetch(select, columns[0]))
    for one in ordered:
        one.id = ids[one.fingerprint]


def _resource(one: StoredResource) -> Sequence[Any]:
    return one.fingerprint, one.attributes, one.schema_url, one.encoded


def _scope(one: StoredScope) -> Sequence[Any]:
    return one.fingerprint, one.name, one.version, one.attributes, one.schema_url, one.encoded


def _series(one: StoredSeries, details: SeriesDetails) -> Sequence[Any]:
    return (
        *(one.fingerprint, details.resource.id, details.scope.id, details.metric, details.description),
        *(details.unit, details.type, details.temporality, details.monotonic, details.attributes, details.encoded),
    )
