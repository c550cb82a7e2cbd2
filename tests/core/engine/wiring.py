"""Pipelines and services that the tests of the engine run."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from opentelemetry.metrics import NoOpMeter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel.batch import ALL_SIGNALS, Batch, Signal
from otel_zernel.clock import SystemClock
from otel_zernel.component import Component, ComponentConfig, Context, Extension, Kind, Processor
from otel_zernel.config.schema import Settings
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.engine.pipelines.pipeline import Pipeline, Stage
from otel_zernel.engine.queues import Lease, MemoryQueue, Queue, Request
from otel_zernel.engine.service import Service
from otel_zernel.telemetry import Instruments
from otel_zernel.testing import Dropped, make_context
from tests.core.parts import LocalSink, Sink, SinkConfig, settings_of, values_of
from tests.otlp import metrics_in

PIPELINE = """
receivers: {source: {values: [1, 2, 3]}}
processors: {doubler: }
exporters: {sink: }
service: {pipelines: {training: {receivers: [source], processors: [doubler], exporters: [sink]}}}
"""

INSTRUMENTS = Instruments(NoOpMeter("test"))


AnyProcessor = TypeVar("AnyProcessor", bound=Processor)


def staged(cls: type[AnyProcessor]) -> tuple[Stage, AnyProcessor]:
    """A stage and its processor."""
    processor = cls(ComponentConfig(), make_context("processors"))
    return Stage(processor, INSTRUMENTS.processor("p", "pipeline")), processor


def stage_of(cls: type[Processor]) -> Stage:
    return staged(cls)[0]


class Wiring:
    """Builds pipelines into sinks."""

    def __init__(self, stack: AsyncExitStack, retry: Mapping[str, Any], instruments: Instruments) -> None:
        self.stack = stack
        self.retry = dict(retry)
        self.instruments = instruments
        self.sinks: list[Sink] = []
        self.extensions: dict[str, Extension] = {}
        self.lock = asyncio.Lock()

    async def delivery(self, **sending_queue: Any) -> Delivery:
        queue = {"num_consumers": 1, **sending_queue}
        config = SinkConfig.model_validate({"sending_queue": queue, "retry_on_failure": self.retry})
        return await self._enter(Sink(config, self._context()))

    async def local_delivery(self) -> Delivery:
        return await self._enter(LocalSink(SinkConfig(), self._context()))

    def _context(self) -> Context:
        return make_context("exporters", f"sink/{len(self.sinks)}", clock=SystemClock(), extensions=self.extensions)

    async def _enter(self, sink: Sink) -> Delivery:
        self.sinks.append(sink)
        return await self.stack.enter_async_context(Delivery(sink, self.instruments.exporter(sink.context.id)))

    def pipeline(
        self, name: str, stages: list[Stage], deliveries: list[Delivery], signals: frozenset[Signal] = ALL_SIGNALS
    ) -> Pipeline:
        return Pipeline(name, stages, deliveries, signals, self.lock)

    def emit_into(self, *pipelines: Pipeline) -> FanOut:
        return FanOut(pipelines, partial(self.instruments.receiver, "source"))


@asynccontextmanager
async def wiring(retry: Mapping[str, Any] = {}, instruments: Instruments = INSTRUMENTS) -> AsyncIterator[Wiring]:
    async with AsyncExitStack() as stack:
        yield Wiring(stack, retry, instruments)


@asynccontextmanager
async def piping(
    *stages: Stage, retry: Mapping[str, Any] = {}, instruments: Instruments = INSTRUMENTS, **sending_queue: Any
) -> AsyncIterator[tuple[FanOut, Delivery, Sink]]:
    """A receiver's emit into a pipeline of these stages, with one exporter."""
    async with wiring(retry, instruments) as it:
        delivery = await it.delivery(**sending_queue)
        yield it.emit_into(it.pipeline("p", [*stages], [delivery])), delivery, it.sinks[0]


class Counting:
    """The collector's own instruments, and the sum of each counter."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.instruments = Instruments(MeterProvider([self._reader]).get_meter("test"))

    def __call__(self, name: str) -> int:
        return sum(self.by_transport(name).values())

    def by_transport(self, name: str) -> Counter[str]:
        """The sum of a counter by the transport of a receiver."""
        data = self._reader.get_metrics_data()
        sums: Counter[str] = Counter()
        for metric in metrics_in(data) if data else []:
            for point in metric.data.data_points if metric.name == name else ():
                sums[point.attributes.get("transport", "")] += point.value
        return sums


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


def sink_of(service: Service, id_: str = "sink") -> Sink:
    exporter = service.exporter(id_)
    assert isinstance(exporter, Sink)
    return exporter


def settings_with(
    cls: type[Component], kind: Kind = "receivers", id_: str = "source", text: str = PIPELINE
) -> Settings:
    """The settings, with one component replaced by another class."""
    settings = settings_of(text)
    object.__setattr__(getattr(settings, kind)[id_], "cls", cls)
    return settings


def losses_of(component: Component) -> dict[str, int]:
    """The items that a component has dropped, by reason."""
    assert isinstance(component.context.drop, Dropped)
    return dict(component.context.drop.counts)


async def other_tasks_run() -> None:
    """Returns when the other tasks have had enough turns to do all that needs no clock and no thread."""
    for _ in range(100):
        await asyncio.sleep(0)
