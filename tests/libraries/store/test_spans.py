"""Spans: each once, and exactly as they were.

What is read back equals what was written.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.writer import StoreWriter
from tests.libraries.store.given import (
    ATTRIBUTES,
    DAY_NS,
    NOW_NS,
    TEXT,
    TIME,
    UINT64,
    any_data,
    flat,
    gauges,
    normal,
    postgres_config,
    read_all,
    reading,
    rows_in,
    sqlite_config,
    write_twice,
    writing,
)
from tests.postgres import PostgresServer

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


async def spans_in(settings: WritableStoreConfig, start_ns: int = 0, end_ns: int = 1 << 63) -> list[TracesData]:
    """The spans that begin in a time, each with its resource and scope."""
    async with reading(settings) as store:
        spans, resources, scopes = map(store.table, ("spans", "resources", "scopes"))
        rows = await store.fetch(
            f"SELECT r.encoded, s.encoded, x.encoded FROM {spans} x JOIN {resources} r ON r.id = x.resource_id "
            f"JOIN {scopes} s ON s.id = x.scope_id WHERE time >= {start_ns} AND time < {end_ns} ORDER BY time"
        )
    data = TracesData()
    for resource, scope, span in rows:
        spans_of = data.resource_spans.add()
        spans_of.MergeFromString(resource)
        spans_of.scope_spans.add().MergeFromString(scope)
        spans_of.scope_spans[0].spans.add().MergeFromString(span)
    return [data]


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


async def test_of_two_spans_with_the_same_ids_the_first_stays_and_the_other_is_counted(
    settings: WritableStoreConfig, store: StoreWriter
) -> None:
    await store.write(steps(5), 0)
    written = await store.write(Batch.join([steps(3), steps(5, name="other")]), 0)
    assert (written.stored, written.repeated, written.conflicting) == (0, 3, 5)
    assert flat_spans(await spans_in(settings)) == flat_spans([steps(5).spans])


async def test_spans_are_read_by_time(settings: WritableStoreConfig, store: StoreWriter) -> None:
    await store.write(steps(20), 0)
    spans = await spans_in(settings, NOW_NS + 5 * 10**9, NOW_NS + 9 * 10**9)
    assert [key[1][-1] for key in flat_spans(spans)] == [5, 6, 7, 8]


async def test_old_spans_go_away_with_their_resources_and_points_stay(settings: WritableStoreConfig) -> None:
    later = NOW_NS + 4 * DAY_NS
    async with writing(settings, retention_ns=2 * DAY_NS) as store:
        await store.write(steps(20), NOW_NS)
        kept = gauges(3, times=1, begin_ns=later)
        await store.write(kept, later)
        assert await store.maintain(later) > 0
        written = await store.write(Batch.join([steps(2, begin_ns=later), steps(4)]), later)
        assert (written.stored, written.dropped) == (2, {"too_old": 4})
    spans = await spans_in(settings)
    assert flat_spans(spans) == flat_spans([steps(2, begin_ns=later).spans])


async def test_metrics_and_spans_share_their_resources(settings: WritableStoreConfig, store: StoreWriter) -> None:
    both = Batch(metrics=gauges(2, times=1).metrics, spans=steps(2).spans)
    both.edit_spans().resource_spans[0].resource.CopyFrom(both.metrics.resource_metrics[0].resource)
    assert (await store.write(both, 0)).stored == 4
    assert await rows_in(settings, "resources") == 1


async def metrics_read_back(settings: WritableStoreConfig, data: MetricsData) -> list[MetricsData]:
    await write_twice(settings, Batch(metrics=data))
    return [batch.metrics for batch in await read_all(settings)]


@given(any_data())
async def test_sqlite_gives_back_exactly_the_points(data: MetricsData) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = sqlite_config(Path(folder), synchronous="normal")
        assert flat(await metrics_read_back(settings, data)) == flat([data])


@given(any_data())
async def test_postgresql_gives_back_exactly_the_points_that_it_got(
    postgres: PostgresServer, data: MetricsData
) -> None:
    settings = postgres_config(postgres)
    assert flat(await metrics_read_back(settings, data)) == flat([data])
