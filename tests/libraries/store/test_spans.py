"""Spans: each once, and exactly as they were."""

import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status, TracesData

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.reading import PointRange, StoreReader
from tests.libraries.store.given import (
    ATTRIBUTES,
    DAY_NS,
    NOW_NS,
    TEXT,
    TIME,
    UINT64,
    gauges,
    normal,
    postgres_config,
    reader,
    sqlite_config,
    write_twice,
    writer,
)
from tests.postgres import PostgresServer

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


ID = st.sampled_from([b"", b"\1" * 8, b"\2" * 8]) | st.binary(min_size=8, max_size=8)
TRACE = st.sampled_from([b"", b"\1" * 16]) | st.binary(min_size=16, max_size=16)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """A span with any content."""
    span = Span(trace_id=draw(TRACE), span_id=draw(ID), parent_span_id=draw(ID), name=draw(TEXT))
    span.start_time_unix_nano, span.end_time_unix_nano = draw(TIME), draw(UINT64)
    span.trace_state, span.flags = draw(TEXT), draw(st.sampled_from([0, 1, 2**32 - 1]))
    span.kind = draw(st.sampled_from([0, 1, 5, 77]))  # type: ignore[assignment]  # an enumeration may grow
    span.attributes.extend(draw(ATTRIBUTES))
    for _ in range(draw(st.integers(0, 2))):
        span.events.add(time_unix_nano=draw(UINT64), name=draw(TEXT), attributes=draw(ATTRIBUTES))
        span.links.add(trace_id=draw(TRACE), span_id=draw(ID), attributes=draw(ATTRIBUTES))
    if draw(st.booleans()):
        code = draw(st.sampled_from([Status.STATUS_CODE_UNSET, Status.STATUS_CODE_ERROR]))
        span.status.CopyFrom(Status(code=code, message=draw(TEXT)))
    return span


@st.composite
def any_traces(draw: st.DrawFn) -> TracesData:
    """Spans of some resources and scopes."""
    data = TracesData()
    for _ in range(draw(st.integers(0, 2))):
        resource = data.resource_spans.add(schema_url=draw(TEXT), resource=Resource(attributes=draw(ATTRIBUTES)))
        for _ in range(draw(st.integers(0, 2))):
            scope = InstrumentationScope(name=draw(TEXT), version=draw(TEXT), attributes=draw(ATTRIBUTES))
            found = draw(st.lists(spans(), max_size=3))
            resource.scope_spans.add(schema_url=draw(TEXT), scope=scope, spans=found)
    return data


def flat_spans(batches: Iterable[TracesData]) -> dict[Any, Any]:
    """Each span with its resource and scope by its ids and its start: the first one counts."""
    found: dict[Any, Any] = {}
    for data in batches:
        for resource in data.resource_spans:
            for scope in resource.scope_spans:
                owners = normal(resource.resource.attributes), resource.schema_url, scope.scope.name
                rest = scope.scope.version, normal(scope.scope.attributes), scope.schema_url
                for span in scope.spans:
                    key = (span.trace_id, span.span_id, span.start_time_unix_nano)
                    found.setdefault(key, (*owners, *rest, span.SerializeToString(deterministic=True)))
    return found


async def spans_in(settings: WritableStoreConfig, wanted: PointRange | None = None) -> list[TracesData]:
    store = reader(settings)
    await store.open()
    try:
        return [batch.spans async for batch in read_spans(store, wanted, size=3)]
    finally:
        await store.close()


async def written_and_read(settings: WritableStoreConfig, data: TracesData) -> list[TracesData]:
    await write_twice(settings, Batch(spans=data))
    return await spans_in(settings)


@given(any_traces())
async def test_sqlite_gives_back_exactly_the_spans(data: TracesData) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = sqlite_config(Path(folder), synchronous="normal")
        assert flat_spans(await written_and_read(settings, data)) == flat_spans([data])


@given(any_traces())
async def test_postgresql_gives_back_exactly_the_spans(postgres: PostgresServer, data: TracesData) -> None:
    settings = postgres_config(postgres)
    assert flat_spans(await written_and_read(settings, data)) == flat_spans([data])


def steps(count: int, begin_ns: int = NOW_NS, name: str = "step") -> Batch:
    data = TracesData()
    resource = data.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "train"
    found = resource.scope_spans.add().spans
    for number in range(count):
        begin = begin_ns + number * 10**9
        span = found.add(trace_id=b"\1" * 16, span_id=number.to_bytes(8, "big"), name=name, start_time_unix_nano=begin)
        span.end_time_unix_nano = begin + 5
    return Batch(spans=data)


@pytest.fixture(params=["sqlite", "postgresql"])
async def settings(request: pytest.FixtureRequest, tmp_path: Path) -> WritableStoreConfig:
    return (
        sqlite_config(tmp_path) if request.param == "sqlite" else postgres_config(request.getfixturevalue("postgres"))
    )


async def test_of_two_spans_with_the_same_ids_the_first_stays_and_the_other_is_counted(
    settings: WritableStoreConfig,
) -> None:
    store = writer(settings)
    await store.write(steps(5), 0)
    written = await store.write(Batch.join([steps(3), steps(5, name="other")]), 0)
    await store.close()
    assert (written.stored, written.repeated, written.conflicting) == (0, 3, 5)
    assert flat_spans(await spans_in(settings)) == flat_spans([steps(5).spans])


async def test_spans_are_read_by_time(settings: WritableStoreConfig) -> None:
    store = writer(settings)
    await store.write(steps(20), 0)
    await store.close()
    found = await spans_in(settings, PointRange(NOW_NS + 5 * 10**9, NOW_NS + 9 * 10**9))
    assert [key[1][-1] for key in flat_spans(found)] == [5, 6, 7, 8]


async def test_old_spans_go_away_with_their_resources_and_points_stay(settings: WritableStoreConfig) -> None:
    later = NOW_NS + 4 * DAY_NS
    store = writer(settings, retention_ns=2 * DAY_NS)
    await store.write(steps(20), NOW_NS)
    kept = gauges(3, times=1, begin_ns=later)
    await store.write(kept, later)
    assert await store.maintain(later) > 0
    written = await store.write(Batch.join([steps(2, begin_ns=later), steps(4)]), later)
    assert (written.stored, written.dropped) == (2, {"too_old": 4})
    await store.close()
    found = await spans_in(settings)
    assert flat_spans(found) == flat_spans([steps(2, begin_ns=later).spans])


async def test_metrics_and_spans_share_their_resources(settings: WritableStoreConfig) -> None:
    store = writer(settings)
    both = Batch(metrics=gauges(2, times=1).metrics, spans=steps(2).spans)
    both.edit_spans().resource_spans[0].resource.CopyFrom(both.metrics.resource_metrics[0].resource)
    assert (await store.write(both, 0)).stored == 4
    await store.close()
    counting = reader(settings)
    await counting.open()
    assert [tuple(row) for row in await counting.fetch(f"SELECT count(*) FROM {counting.table('resources')}")] == [(1,)]
    await counting.close()
