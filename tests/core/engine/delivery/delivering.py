"""A delivery with one exporter, for the tests of deliveries and queues."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from otel_zernel.clock import Clock
from otel_zernel.component import Extension
from otel_zernel.engine.delivery import Delivery
from otel_zernel.testing import make_context
from tests.core.engine.journals import MemoryStorage
from tests.core.engine.wiring import Counting
from tests.core.parts import Sink, SinkConfig

AnySink = TypeVar("AnySink", bound=Sink)
DURABLE = {"storage": "storage"}
"""The settings of a queue that is stored in `storage`."""


@asynccontextmanager
async def delivering_into(
    kind: type[AnySink], clock: Clock | None = None, storage: MemoryStorage | None = None, **config: Any
) -> AsyncIterator[tuple[Delivery, AnySink, Counting]]:
    """A delivery into a sink of a kind, and a function that reads the sum of one of the collector's own counters."""
    counted = Counting()
    extensions: dict[str, Extension] = {"storage": storage or MemoryStorage()}
    context = make_context("exporters", "sink", clock=clock, extensions=extensions)
    sink = kind(SinkConfig.model_validate(config), context)
    async with Delivery(sink, counted.instruments.exporter("sink")) as delivery:
        yield delivery, sink, counted


def delivering(
    clock: Clock | None = None, storage: MemoryStorage | None = None, **config: Any
) -> AbstractAsyncContextManager[tuple[Delivery, Sink, Counting]]:
    return delivering_into(Sink, clock, storage, **config)
