"""A websocket exporter on a port of the system's choice, foreign clients, and the batches to feed it."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from websockets.asyncio.client import connect

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock, SystemClock
from otel_zernel.component import Extension
from otel_zernel.otlp.points import Attributes, AttributeValue, key_values
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_exporters.websocket import WebSocketExporter
from otel_zernel_exporters.websocket.readers import Feed
from tests import otlp

LAUNCHES = "zernel.cuda.launch.latency"
COLLECTIVES = "zernel.nccl.collective.duration"
WAITS = "zernel.dataloader.wait"
USED, PEAK = "zernel.cuda.memory.used", "zernel.cuda.memory.peak"
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
        message: dict[str, Any] = json.loads(self.feed.message())
        return message


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
    amount: int | None, name: str = USED, pid: int = 7, gpu: int = 0, resource: Attributes | None = None
) -> Batch:
    """A gauge with one point. None: a point without a recorded value."""
    of_gpu: Attributes = {"process.pid": pid, "zernel.gpu.index": gpu}
    point = otlp.ended(of_gpu) if amount is None else otlp.number(amount, of_gpu)
    return Batch(otlp.data(otlp.gauge(name, point), resource=resource))


def explicit(
    name: str,
    counts: Mapping[float, int],
    temporality: AggregationTemporality.ValueType = otlp.DELTA,
    *,
    at: tuple[int, int] = (1, 2),
    **attributes: AttributeValue,
) -> Batch:
    """A histogram with a narrow bucket around each value (s). `at` is the start and the end in s."""
    values = sorted(counts)
    bounds = [bound for value in values for bound in (value * 0.999, value * 1.001)]
    buckets = [count for value in values for count in (0, counts[value])]
    metric = otlp.histogram(name, bounds, [*buckets, 0], temporality=temporality)
    return _placed(metric, metric.histogram.data_points[0], at, attributes)


def exponential(
    name: str,
    indices: Iterable[int],
    temporality: AggregationTemporality.ValueType = otlp.DELTA,
    *,
    at: tuple[int, int] = (1, 2),
    **attributes: AttributeValue,
) -> Batch:
    """An exponential histogram of scale 5 with one value in each of these buckets."""
    chosen = sorted(indices)
    counts = [chosen.count(index) for index in range(chosen[0], chosen[-1] + 1)]
    metric = otlp.exponential(name, 5, (chosen[0], counts), temporality=temporality)
    return _placed(metric, metric.exponential_histogram.data_points[0], at, attributes)


def summary(name: str, quantiles: dict[float, float], count: int = 0, **attributes: AttributeValue) -> Batch:
    metric = otlp.summary(name, quantiles, count, 0.0)
    return _placed(metric, metric.summary.data_points[0], (0, 0), attributes)


def _placed(metric: Metric, point: Any, at: tuple[int, int], attributes: Mapping[str, AttributeValue]) -> Batch:
    """The metric, whose point has these times and attributes."""
    point.start_time_unix_nano, point.time_unix_nano = (second * otlp.SECOND for second in at)
    point.attributes.extend(key_values({key.replace("_", "."): value for key, value in attributes.items()}))
    return Batch(otlp.data(metric))
