"""A websocket exporter on a port of the system's choice, foreign clients, and the batches to feed it."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    ExponentialHistogramDataPoint,
    MetricsData,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from websockets.asyncio.client import connect

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock, SystemClock
from otel_zernel.component import Extension
from otel_zernel.otlp.points import AttributeValue, key_values
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_exporters.websocket import WebSocketExporter
from otel_zernel_exporters.websocket.readers import Feed

LAUNCHES = "zernel.cuda.launch.latency"
COLLECTIVES = "zernel.nccl.collective.duration"
WAITS = "zernel.dataloader.wait"
USED, PEAK = "zernel.cuda.memory.used", "zernel.cuda.memory.peak"
DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
SECOND = 1_000_000_000
EMPTY = {
    "gpu_utilization": [],
    "cuda_latency_p50_us": 0.0,
    "cuda_latency_p99_us": 0.0,
    "nccl_allreduce_p50_ms": 0.0,
    "nccl_allreduce_p99_ms": 0.0,
    "dataloader_wait_p50_ms": 0.0,
    "last_update_ms": 0,
}
"""The message before there is data."""


class FeedRun:
    """A state whose clock the test moves."""

    def __init__(self, expiration: float = 300) -> None:
        self.clock = FakeClock()
        self.drops = Counter[str]()
        self.feed = Feed(self.clock, expiration)

    def add(self, *batches: Batch) -> dict[str, Any]:
        """The message after these batches."""
        for batch in batches:
            self.feed.add(batch)
            self.drops += self.feed.state.take_dropped()
        return self.message()

    def after(self, seconds: float) -> dict[str, Any]:
        """The message at a later time."""
        self.clock.advance(seconds)
        return self.message()

    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.feed.message())
        return found


@asynccontextmanager
async def feeding(
    clock: Clock | None = None, extensions: Mapping[str, Extension] | None = None, **config: Any
) -> AsyncIterator[WebSocketExporter]:
    """A running exporter."""
    context = make_context("exporters", "websocket", clock=clock or SystemClock(), extensions=extensions)
    settings = WebSocketExporter.Config.model_validate({"endpoint": "localhost:0", "push_interval": "100ms", **config})
    async with WebSocketExporter(settings, context) as exporter:
        yield exporter


def client_of(exporter: WebSocketExporter, path: str = "/", **options: Any) -> connect:
    return connect(f"ws://{exporter.address}{path}", **options)


def memory(
    amount: float | None,
    name: str = USED,
    pid: int = 7,
    gpu: int = 0,
    resource: Mapping[str, AttributeValue] | None = None,
) -> Batch:
    """A gauge with one point. None: a point without a recorded value."""
    metric, batch = _metric(name, resource or {})
    point = metric.gauge.data_points.add(attributes=key_values({"process.pid": pid, "zernel.gpu.index": gpu}))
    if amount is None:
        point.flags = 1
    else:
        point.as_int = int(amount)
    return batch


def explicit(
    name: str,
    counts: Mapping[float, int],
    temporality: AggregationTemporality.ValueType = DELTA,
    *,
    at: tuple[int, int] = (1, 2),
    **attributes: AttributeValue,
) -> Batch:
    """A histogram with a narrow bucket around each value (s). `at` is the start and the end in s."""
    metric, batch = _metric(name, {})
    metric.histogram.aggregation_temporality = temporality
    start, end = (one * SECOND for one in at)
    given = key_values({key.replace("_", "."): value for key, value in attributes.items()})
    point = metric.histogram.data_points.add(attributes=given, start_time_unix_nano=start, time_unix_nano=end)
    for value in sorted(counts):
        point.explicit_bounds.extend([value * 0.999, value * 1.001])
        point.bucket_counts.extend([0, counts[value]])
    point.bucket_counts.append(0)
    point.count = sum(counts.values())
    return batch


def exponential(
    name: str,
    indices: Iterable[int],
    temporality: AggregationTemporality.ValueType = DELTA,
    *,
    at: tuple[int, int] = (1, 2),
    **attributes: AttributeValue,
) -> Batch:
    """An exponential histogram of scale 5 with one value in each of these buckets."""
    metric, batch = _metric(name, {})
    metric.exponential_histogram.aggregation_temporality = temporality
    start, end = (one * SECOND for one in at)
    given = key_values({key.replace("_", "."): value for key, value in attributes.items()})
    point: ExponentialHistogramDataPoint = metric.exponential_histogram.data_points.add(
        attributes=given, start_time_unix_nano=start, time_unix_nano=end
    )
    chosen = sorted(indices)
    point.scale, point.count, point.positive.offset = 5, len(chosen), chosen[0]
    point.positive.bucket_counts.extend([chosen.count(one) for one in range(chosen[0], chosen[-1] + 1)])
    return batch


def summary(name: str, quantiles: Mapping[float, float], count: int = 0, **attributes: AttributeValue) -> Batch:
    metric, batch = _metric(name, {})
    given = key_values({key.replace("_", "."): value for key, value in attributes.items()})
    point = metric.summary.data_points.add(attributes=given, count=count)
    for quantile, value in quantiles.items():
        point.quantile_values.add(quantile=quantile, value=value)
    return batch


def _metric(name: str, resource: Mapping[str, AttributeValue]) -> tuple[Any, Batch]:
    metrics = MetricsData()
    of_resource = metrics.resource_metrics.add(resource=Resource(attributes=key_values(resource)))
    return of_resource.scope_metrics.add().metrics.add(name=name), Batch(metrics)
