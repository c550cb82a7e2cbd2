"""A delivery with one exporter, for the tests of deliveries."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel.clock import Clock
from otel_zernel.engine.delivery import Delivery
from otel_zernel.telemetry import Instruments
from otel_zernel.testing import make_context
from tests.core.parts import Sink, SinkConfig
from tests.otlp import metrics_in

Counts = Callable[[str], int]


@asynccontextmanager
async def delivering(clock: Clock | None = None, **config: Any) -> AsyncIterator[tuple[Delivery, Sink, Counts]]:
    """A delivery into a sink, and a function that reads the sum of one of the collector's own counters."""
    reader = InMemoryMetricReader()
    instruments = Instruments(MeterProvider([reader]).get_meter("test"))
    sink = Sink(SinkConfig.model_validate(config), make_context("exporters", "sink", clock=clock))

    def counted(name: str) -> int:
        data = reader.get_metrics_data()
        metrics = metrics_in(data) if data else []
        return sum(point.value for metric in metrics if metric.name == name for point in metric.data.data_points)

    async with Delivery(sink, instruments.exporter("sink")) as delivery:
        yield delivery, sink, counted
