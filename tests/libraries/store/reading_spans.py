"""The spans that were written, as batches again."""

from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import count
from typing import Any, Final

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, TracesData

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.reading import PointRange, StoreReader

_PAGE: Final = 5000
_IDS: Final = 500
"""Ids in one query at most."""
Owners = dict[int, bytes]
"""The encoded messages of resources or scopes, by their ids."""


async def read_spans(store: StoreReader, wanted: PointRange | None = None, size: int = _PAGE) -> AsyncIterator[Batch]:
    """The spans that begin in a time, exactly, in batches of at most `size`, by trace, start and id.

    Each batch is a few short queries: spans that are written or removed meanwhile may be missing or not.
    """
    wanted = wanted or PointRange()
    after: tuple[Any, ...] = (b"", -1, b"")
    sql = (
        f"SELECT trace_id, time, span_id, resource_id, scope_id, encoded FROM {store.table('spans')} "
        "WHERE (trace_id, time, span_id) > (?, ?, ?) AND time >= ? AND time <= ? "
        "ORDER BY trace_id, time, span_id LIMIT ?"
    )
    while rows := await _fetch(store, sql, *after, wanted.start_ns, wanted.end_ns - 1, size):
        after = tuple(rows[-1][:3])
        resources = await _owners(store, "resources", {row[3] for row in rows})
        scopes = await _owners(store, "scopes", {row[4] for row in rows})
        yield Batch(spans=_assembled(rows, resources, scopes))
        if len(rows) < size:
            break


def _assembled(rows: Iterable[Sequence[Any]], resources: Owners, scopes: Owners) -> TracesData:
    data = TracesData()
    of_resources: dict[int, ResourceSpans] = {}
    of_scopes: dict[tuple[int, int], ScopeSpans] = {}
    for _, _, _, resource, scope, encoded in rows:
        if resource not in resources or scope not in scopes:  # removed since the rows were read
            continue
        if resource not in of_resources:
            of_resources[resource] = data.resource_spans.add()
            of_resources[resource].MergeFromString(resources[resource])
        key = (resource, scope)
        if key not in of_scopes:
            of_scopes[key] = of_resources[resource].scope_spans.add()
            of_scopes[key].MergeFromString(scopes[scope])
        of_scopes[key].spans.add().MergeFromString(encoded)
    return data


async def _owners(store: StoreReader, table: str, ids: set[int]) -> Owners:
    """The messages of metrics and of traces have the same fields for resources, scopes and schema URLs."""
    found: Owners = {}
    ordered = sorted(ids)
    for begin in range(0, len(ordered), _IDS):
        some = ordered[begin : begin + _IDS]
        marks = ", ".join("?" * len(some))
        rows = await _fetch(store, f"SELECT id, encoded FROM {store.table(table)} WHERE id IN ({marks})", *some)
        found.update((row[0], row[1]) for row in rows)
    return found


async def _fetch(store: StoreReader, sql: str, *values: Any) -> list[Sequence[Any]]:
    """Runs a query with `?` in the place of values."""
    if store.dialect == "postgresql":
        numbers = count(1)
        sql = "".join(f"${next(numbers)}" if letter == "?" else letter for letter in sql)
    return await store.fetch(sql, *values)
