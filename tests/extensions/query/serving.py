"""The query extension on a store that the test fills."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel.batch import Batch
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_extensions.query import QueryExtension
from otel_zernel_extensions.query.config import QueryConfig
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.writer import StoreWriter
from tests.api_server import FakeAnswer, FakeApiServer
from tests.libraries.store.given import writer
from tests.otlp import data

SECOND = 10**9
BEGIN = 1_700_000_000 * SECOND
"""2023-11-14T22:13:20Z."""


@dataclass(slots=True)
class Served:
    """A store with its routes."""

    store: StoreWriter
    api: FakeApiServer
    clock: FakeClock

    async def write(self, *metrics: Metric, **resource: str) -> None:
        """Stores metrics of one resource; `host_name` stands for `host.name`."""
        named = {name.replace("_", "."): value for name, value in resource.items()}
        await self.store.write(Batch(metrics=data(*metrics, resource=named)), 0)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> FakeAnswer:
        return await self.api.get(f"/api/v1{path}", headers)

    async def data(self, path: str) -> list[dict[str, Any]]:
        """The records of an answer that succeeds."""
        answer = await self.get(path)
        assert answer.status == 200, answer.body
        found: list[dict[str, Any]] = answer.json["data"]
        return found


@asynccontextmanager
async def serving(settings: WritableStoreConfig, **options: Any) -> AsyncIterator[Served]:
    store, api = writer(settings), FakeApiServer()
    await store.open()
    shared = {name: getattr(settings, name) for name in ("url", "schema_name", "connect_timeout")}
    config = QueryConfig.model_validate({**shared, "connect_timeout": "60s", **options})
    clock = FakeClock(time_ns=BEGIN + 3600 * SECOND)
    context = make_context("extensions", "query", clock=clock, extensions={"api": api})
    try:
        async with QueryExtension(config, context):
            yield Served(store, api, clock)
    finally:
        await store.close()


def pairs(attributes: Mapping[str, Any]) -> Iterable[KeyValue]:
    for name, value in attributes.items():
        kind = "int_value" if isinstance(value, int) else "string_value"
        yield KeyValue(key=name, value=AnyValue(**{kind: value}))


def gauge(name: str, values: Iterable[float], step: int = SECOND, **attributes: Any) -> Metric:
    """A gauge with a value each `step` ns from `BEGIN`."""
    metric = Metric(name=name, unit="W")
    for place, value in enumerate(values):
        point = metric.gauge.data_points.add(time_unix_nano=BEGIN + place * step, as_double=value)
        point.attributes.extend(pairs({key.replace("_", "."): attribute for key, attribute in attributes.items()}))
    return metric


def counter(name: str, values: Iterable[int], *, started: int | None = None, temporality: int = 2) -> Metric:
    """A monotonic sum with a value each second from `BEGIN`; the start is `started` seconds after `BEGIN`."""
    metric = Metric(name=name)
    metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, temporality  # type: ignore[assignment]
    start = None if started is None else BEGIN + started * SECOND
    for place, value in enumerate(values):
        point = metric.sum.data_points.add(time_unix_nano=BEGIN + place * SECOND, as_int=value)
        point.start_time_unix_nano = start or 0
    return metric
