"""Metrics for the tests of the store, and their comparison."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Exemplar,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    SummaryDataPoint,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from pydantic import TypeAdapter

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.opening import reader_for, writer_for
from otel_zernel_libraries.store.reading import PointRange, StoreReader
from otel_zernel_libraries.store.rows.points import LATEST_TIME
from otel_zernel_libraries.store.writer import StoreWriter, WriterOptions
from tests.postgres import PostgresServer, new_schema


def config(**settings: Any) -> WritableStoreConfig:
    return TypeAdapter(WritableStoreConfig).validate_python(settings)


def sqlite_config(folder: Path, **settings: Any) -> WritableStoreConfig:
    return config(url=f"sqlite://{folder}/metrics.db", **settings)


def postgres_config(server: PostgresServer, **settings: Any) -> WritableStoreConfig:
    return config(url=server.url(), **{"schema_name": new_schema(), "connect_timeout": "60s", **settings})


def new_stores(request: pytest.FixtureRequest) -> Callable[[Path], WritableStoreConfig]:
    """Makes stores of the kind that the fixture has as its parameter, `sqlite` or `postgresql`."""
    if request.param == "sqlite":
        return lambda folder: sqlite_config(folder, synchronous="normal", connect_timeout="60s")
    server = request.getfixturevalue("postgres")
    return lambda _: postgres_config(server)


def writer(settings: WritableStoreConfig, **options: int) -> StoreWriter:
    return writer_for(settings, WriterOptions("exporters::sql", **{"series": 10_000, **options}))


@asynccontextmanager
async def writing(settings: WritableStoreConfig, **options: int) -> AsyncIterator[StoreWriter]:
    """A writer, which is closed at the end."""
    store = writer(settings, **options)
    try:
        yield store
    finally:
        await store.close()


async def make(settings: WritableStoreConfig) -> None:
    """Makes the tables of a store."""
    async with writing(settings) as store:
        await store.open()


async def write_twice(settings: WritableStoreConfig, batch: Batch) -> None:
    """The second time, the store has everything already."""
    async with writing(settings) as store:
        await store.open()
        await store.write(batch, 0)
        assert (await store.write(batch, 0)).stored == 0


def reader(settings: WritableStoreConfig) -> StoreReader:
    return reader_for(settings, "extensions::rest")


@asynccontextmanager
async def reading(settings: WritableStoreConfig) -> AsyncIterator[StoreReader]:
    """An open reader, which is closed at the end."""
    store = reader(settings)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def read_all(settings: WritableStoreConfig, wanted: PointRange | None = None, size: int = 7) -> list[Batch]:
    """All that a store has, in small batches."""
    async with reading(settings) as store:
        return [batch async for batch in store.read(wanted, size)]


async def rows_in(settings: WritableStoreConfig, table: str) -> int:
    """The number of rows of a table."""
    async with reading(settings) as store:
        return int((await store.fetch(f"SELECT count(*) FROM {store.table(table)}"))[0][0])


async def points_in(settings: WritableStoreConfig) -> int:
    """The number of points of all kinds that a store has."""
    return sum([batch.point_count for batch in await read_all(settings, size=5000)])


# All numbers and texts that OTLP can carry.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
UINT64 = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1])
INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 0])
DOUBLE = st.floats(width=64) | st.sampled_from([-0.0, float("nan"), float("inf"), -float("inf"), 5e-324])
TIME = st.integers(0, LATEST_TIME) | st.integers(1_700_000_000 * 10**9, 1_700_100_000 * 10**9)
FLAGS = st.sampled_from([0, 0, 1, 2**31, 2**32 - 1])
VALUE: st.SearchStrategy[AnyValue] = st.deferred(
    lambda: st.one_of(
        st.builds(AnyValue),
        st.builds(AnyValue, string_value=TEXT),
        st.builds(AnyValue, bool_value=st.booleans()),
        st.builds(AnyValue, int_value=INT64),
        st.builds(AnyValue, double_value=DOUBLE),
        st.builds(AnyValue, bytes_value=st.binary(max_size=4)),
        st.lists(VALUE, max_size=2).map(lambda values: AnyValue(array_value=ArrayValue(values=values))),
        ATTRIBUTES.map(lambda pairs: AnyValue(kvlist_value=KeyValueList(values=pairs))),
    )
)
ATTRIBUTES: st.SearchStrategy[list[KeyValue]] = st.lists(
    st.builds(KeyValue, key=TEXT | st.just("a"), value=VALUE), max_size=3
)
OPTIONAL = st.none() | DOUBLE


@st.composite
def _exemplar(draw: st.DrawFn) -> Exemplar:
    exemplar = Exemplar(time_unix_nano=draw(UINT64), filtered_attributes=draw(ATTRIBUTES))
    exemplar.trace_id = draw(st.sampled_from([b"", b"\1" * 16]))
    exemplar.span_id = draw(st.sampled_from([b"", b"\2" * 8]))
    _set_value(draw, exemplar)
    return exemplar


def _set_value(draw: st.DrawFn, point: NumberDataPoint | Exemplar) -> None:
    """A double, an integer, or no value."""
    kind = draw(st.sampled_from(["as_double", "as_int", None]))
    if kind:
        setattr(point, kind, draw(DOUBLE if kind == "as_double" else INT64))


_COMMON: dict[str, st.SearchStrategy[Any]] = {
    "attributes": ATTRIBUTES,
    "time_unix_nano": TIME,
    "start_time_unix_nano": UINT64,
    "flags": FLAGS,
}
_EXEMPLARS = st.lists(_exemplar(), max_size=2)
_TOTALS = {**_COMMON, "count": UINT64, "sum": OPTIONAL, "min": OPTIONAL, "max": OPTIONAL, "exemplars": _EXEMPLARS}
_BUCKETS = st.none() | st.builds(
    ExponentialHistogramDataPoint.Buckets,
    offset=st.integers(-(2**31), 2**31 - 1),
    bucket_counts=st.lists(UINT64, max_size=3),
)


@st.composite
def _number(draw: st.DrawFn) -> NumberDataPoint:
    common: dict[str, Any] = {name: draw(value) for name, value in _COMMON.items()}
    point = NumberDataPoint(**common, exemplars=draw(_EXEMPLARS))
    _set_value(draw, point)
    return point


def _histogram() -> st.SearchStrategy[HistogramDataPoint]:
    counts, bounds = st.lists(UINT64, max_size=3), st.lists(DOUBLE, max_size=3)
    return st.builds(HistogramDataPoint, **_TOTALS, bucket_counts=counts, explicit_bounds=bounds)


def _exponential() -> st.SearchStrategy[ExponentialHistogramDataPoint]:
    scale = st.integers(-(2**31), 2**31 - 1)
    buckets = {"positive": _BUCKETS, "negative": _BUCKETS}
    return st.builds(
        ExponentialHistogramDataPoint, **_TOTALS, scale=scale, zero_count=UINT64, zero_threshold=DOUBLE, **buckets
    )


def _summary() -> st.SearchStrategy[SummaryDataPoint]:
    pair = st.builds(SummaryDataPoint.ValueAtQuantile, quantile=DOUBLE, value=DOUBLE)
    return st.builds(SummaryDataPoint, **_COMMON, count=UINT64, sum=DOUBLE, quantile_values=st.lists(pair, max_size=3))


_POINTS = {
    "gauge": _number(),
    "sum": _number(),
    "histogram": _histogram(),
    "exponential_histogram": _exponential(),
    "summary": _summary(),
}


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    """A metric of any type with any points."""
    found = Metric(name=draw(TEXT), unit=draw(TEXT), description=draw(TEXT), metadata=draw(ATTRIBUTES))
    type_ = draw(st.sampled_from(list(_POINTS)))
    data = getattr(found, type_)
    data.SetInParent()
    if type_ not in ("gauge", "summary"):
        data.aggregation_temporality = draw(st.sampled_from([0, 1, 2, 77]))
    if type_ == "sum":
        data.is_monotonic = draw(st.booleans())
    data.data_points.extend(draw(st.lists(_POINTS[type_], max_size=3)))
    return found


@st.composite
def any_data(draw: st.DrawFn) -> MetricsData:
    """Metrics of some resources and scopes."""
    data = MetricsData()
    for _ in range(draw(st.integers(0, 2))):
        resource = data.resource_metrics.add(schema_url=draw(TEXT))
        resource.resource.CopyFrom(Resource(attributes=draw(ATTRIBUTES), dropped_attributes_count=draw(FLAGS)))
        for _ in range(draw(st.integers(0, 2))):
            scope = resource.scope_metrics.add(schema_url=draw(TEXT), metrics=draw(st.lists(metrics(), max_size=2)))
            scope.scope.CopyFrom(InstrumentationScope(name=draw(TEXT), version=draw(TEXT), attributes=draw(ATTRIBUTES)))
    return data


def normal(value: Any) -> Any:
    """Attributes without an order."""
    if isinstance(value, AnyValue):
        kind = value.WhichOneof("value")
        if kind == "kvlist_value":
            return kind, normal(value.kvlist_value.values)
        if kind == "array_value":
            return kind, tuple(map(normal, value.array_value.values))
        return value.SerializeToString()
    return tuple(sorted((pair.key, repr(normal(pair.value))) for pair in value))


def flat(batches: Iterable[MetricsData]) -> dict[Any, Any]:
    """Each point by the identity of its series and its time: the first one counts, as the first description does."""
    found: dict[Any, Any] = {}
    for data in batches:
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    type_ = str(metric.WhichOneof("data"))
                    series = (
                        *_owner(resource.resource, resource),
                        *_owner(scope.scope, scope),
                        *_header(metric, type_),
                    )
                    for point in getattr(metric, type_).data_points:
                        key = (*series, normal(point.attributes), point.time_unix_nano)
                        found.setdefault(key, _rest(point))
    return found


def _owner(owner: Any, holder: Any) -> tuple[Any, ...]:
    return (*_rest_and_attributes(owner), holder.schema_url)


def _rest_and_attributes(message: Any) -> tuple[Any, Any]:
    return normal(message.attributes), _rest(message)


def _rest(message: Any) -> bytes:
    """The message without its attributes."""
    rest = type(message)()
    rest.CopyFrom(message)
    rest.ClearField("attributes")
    return bytes(rest.SerializeToString(deterministic=True))


def _header(metric: Metric, type_: str) -> tuple[Any, ...]:
    data = getattr(metric, type_)
    temporality = getattr(data, "aggregation_temporality", None)
    return metric.name, metric.unit, type_, temporality, getattr(data, "is_monotonic", None)


DAY_NS = 86_400 * 10**9
NOW_NS = 20_000 * DAY_NS  # a midnight in October 2024


def gauges(series: int, times: int, first: int = 0, begin_ns: int = NOW_NS) -> Batch:
    """Points of some series at some times, a second apart. Each value depends on the series and the time alone."""
    data = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key="host.name").value.string_value = "node"
    metric = resource.scope_metrics.add().metrics.add(name="hw.gpu.utilization", unit="1")
    for number in range(series):
        for time in range(first, first + times):
            point = metric.gauge.data_points.add(time_unix_nano=begin_ns + time * 10**9, as_double=number + time / 7)
            point.attributes.add(key="name").value.string_value = "a GPU"
            point.attributes.add(key="gpu").value.int_value = number
    return Batch(metrics=data)


def histograms(series: int, begin_ns: int = NOW_NS) -> Batch:
    """A histogram with an exemplar of each series."""
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="step.duration", unit="s")
    metric.histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    for number in range(series):
        point = metric.histogram.data_points.add(time_unix_nano=begin_ns, count=3, sum=number + 0.5)
        point.explicit_bounds.extend([1.0, 2.0])
        point.bucket_counts.extend([1, 2, 0])
        point.attributes.add(key="rank").value.int_value = number
        point.exemplars.add(time_unix_nano=begin_ns - 1, as_double=0.5, trace_id=b"\1" * 16, span_id=b"\2" * 8)
    return Batch(metrics=data)
