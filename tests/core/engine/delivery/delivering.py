"""A delivery with one exporter, for the tests of deliveries."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from otel_zernel.clock import Clock
from otel_zernel.engine.delivery import Delivery
from otel_zernel.testing import make_context
from tests.core.engine.wiring import Counting
from tests.core.parts import Sink, SinkConfig


@asynccontextmanager
async def delivering(clock: Clock | None = None, **config: Any) -> AsyncIterator[tuple[Delivery, Sink, Counting]]:
    """A delivery into a sink, and a function that reads the sum of one of the collector's own counters."""
    counted = Counting()
    sink = Sink(SinkConfig.model_validate(config), make_context("exporters", "sink", clock=clock))
    async with Delivery(sink, counted.instruments.exporter("sink")) as delivery:
        yield delivery, sink, counted
