"""Pipelines and services that the tests of the engine run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from opentelemetry.metrics import NoOpMeter

from otel_zernel.batch import ALL_SIGNALS, Batch, Signal
from otel_zernel.component import Component, ComponentConfig, Kind, Processor
from otel_zernel.config.schema import Settings
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.graph import Graph
from otel_zernel.engine.pipeline import FanOut, Pipeline, Stage
from otel_zernel.engine.queues import Lease, MemoryQueue, Queue, Request
from otel_zernel.engine.service import Service
from otel_zernel.telemetry import Instruments
from otel_zernel.testing import make_context
from tests.core.parts import Sink, SinkConfig, settings_of, values_of

PIPELINE = """
receivers: {source: {values: [1, 2, 3]}}
processors: {doubler: }
exporters: {sink: }
service: {pipelines: {training: {receivers: [source], processors: [doubler], exporters: [sink]}}}
"""

INSTRUMENTS = Instruments(NoOpMeter("test"))


def stage_of(cls: type[Processor]) -> Stage:
    return Stage(cls(ComponentConfig(), make_context("processors")), INSTRUMENTS.processor("p", "pipeline"))


class Wiring:
    """Builds pipelines into sinks."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.sinks: list[Sink] = []
        self.lock = asyncio.Lock()

    async def delivery(self, **sending_queue: Any) -> Delivery:
        config = SinkConfig.model_validate({"sending_queue": {"num_consumers": 1, **sending_queue}})
        self.sinks.append(Sink(config, make_context("exporters", f"sink/{len(self.sinks)}")))
        return await self.stack.enter_async_context(Delivery(self.sinks[-1], INSTRUMENTS.exporter("sink")))

    def pipeline(
        self, name: str, stages: list[Stage], deliveries: list[Delivery], signals: frozenset[Signal] = ALL_SIGNALS
    ) -> Pipeline:
        return Pipeline(name, stages, deliveries, signals, self.lock)

    def emit_into(self, *pipelines: Pipeline) -> FanOut:
        return FanOut(pipelines, partial(INSTRUMENTS.receiver, "source"))


@asynccontextmanager
async def wiring() -> AsyncIterator[Wiring]:
    async with AsyncExitStack() as stack:
        yield Wiring(stack)


class RecordingQueue(MemoryQueue):
    """A queue that records the values of the entries that are removed."""

    def __init__(self, sizer: str = "requests", queue_size: int = 10) -> None:
        super().__init__(SendingQueueConfig.model_validate({"sizer": sizer, "queue_size": queue_size}))
        self.removed: list[float] = []

    def remove(self, lease: Lease) -> None:
        super().remove(lease)
        self.removed += values_of([lease.batch])

    def put_all(self, *batches: Batch) -> None:
        for batch in batches:
            self.put(batch)

    def lease_all(self) -> list[Request]:
        """A request for each entry."""
        return requests_of(self)


def requests_of(queue: Queue) -> list[Request]:
    """Leases all entries: a request for each."""
    leases = iter(queue.lease, None)
    return [Request(lease.batch, (lease,)) for lease in leases]


def graph_of(service: Service) -> Graph:
    assert service.graph is not None
    return service.graph


def sink_of(service: Service, id_: str = "sink") -> Sink:
    exporter = graph_of(service).deliveries[id_].exporter
    assert isinstance(exporter, Sink)
    return exporter


def settings_with(
    cls: type[Component], kind: Kind = "receivers", id_: str = "source", text: str = PIPELINE
) -> Settings:
    """The settings, with one component replaced by another class."""
    settings = settings_of(text)
    object.__setattr__(getattr(settings, kind)[id_], "cls", cls)
    return settings
