"""Components and batches for the tests of the core."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pydantic import Field

from otel_zernel.batch import Batch
from otel_zernel.component import Component, ComponentConfig, Emit, Exporter, Kind, Processor, Receiver, Scraper
from otel_zernel.config.load import load
from otel_zernel.config.schema import Settings, validate
from otel_zernel.delivery_config import RemoteExporterConfig
from otel_zernel.errors import Retryable
from otel_zernel.otlp.points import Descriptor, Scope, Series, encode_point_attributes, encode_resource
from otel_zernel.registry import Registry
from otel_zernel_libraries.arrays import KnownSeries
from tests.otlp import logs, metrics_in, traces

SCOPE = Scope("tests")
INFO = SeverityNumber.SEVERITY_NUMBER_INFO


def batch_of(*values: float, name: str = "test.value") -> Batch:
    """A batch with one gauge point for each value. Each point has its own series."""
    resource = encode_resource({"host.name": "node"})
    series = [
        Series(resource, SCOPE, Descriptor(name, "1"), encode_point_attributes({"n": position}))
        for position in range(len(values))
    ]
    return Batch.encoded("metrics", KnownSeries(series).encode(np.array(values), 1_000), len(values))


def every_signal() -> Batch:
    """A batch with one gauge point, one span and one log record, from received bytes."""
    span = Span(name="step", trace_id=b"\x01" * 16, span_id=b"\x02" * 8)
    record = LogRecord(time_unix_nano=1_000, severity_number=INFO, body=AnyValue(string_value="started"))
    spans, records = traces(span).SerializeToString(), logs(record).SerializeToString()
    return Batch.from_bytes(metrics=batch_of(1.0).bytes_of("metrics"), spans=spans, logs=records)


def one_span() -> Batch:
    """A batch with one span, from received bytes."""
    return every_signal().only({"traces"})


def values_of(batches: Iterable[Batch]) -> list[float]:
    """The values of every gauge point, in order."""
    return [
        point.as_double
        for batch in batches
        for metric in metrics_in(batch.metrics)
        for point in metric.gauge.data_points
    ]


class SourceConfig(ComponentConfig):
    values: list[float] = Field(default=[1.0, 2.0, 3.0])
    fail_first: int = 0
    forever: bool = False


class Source(Receiver):
    """Emits one batch for each value. The first `fail_first` runs crash, counted over all instances."""

    Config = SourceConfig
    crashes = 0

    async def run(self, emit: Emit) -> None:
        config: SourceConfig = self.config
        if type(self).crashes < config.fail_first:
            type(self).crashes += 1
            raise RuntimeError("the receiver broke")
        for value in config.values:
            await emit(batch_of(value))
        while config.forever:
            await self.context.clock.sleep(0.01)


class Doubler(Processor):
    """Doubles every gauge. Raises `ValueError` for a negative one."""

    def process(self, batch: Batch) -> Iterable[Batch]:
        if any(value < 0 for value in values_of([batch])):
            raise ValueError("negative")
        for metric in metrics_in(batch.edit_metrics()):
            for point in metric.gauge.data_points:
                point.as_double *= 2
        return [batch]


class Keeper(Processor):
    """Holds every batch until it is flushed."""

    def __init__(self, config: ComponentConfig, context: Any) -> None:
        super().__init__(config, context)
        self.held: list[Batch] = []

    def process(self, batch: Batch) -> Iterable[Batch]:
        self.held.append(batch)
        return []

    def flush(self) -> Iterable[Batch]:
        held, self.held = self.held, []
        return held


class Ticker(Processor):
    """Drops batches. Each tick emits the number of points so far."""

    interval = 1.0

    def __init__(self, config: ComponentConfig, context: Any) -> None:
        super().__init__(config, context)
        self.points = 0

    def process(self, batch: Batch) -> Iterable[Batch]:
        self.points += batch.point_count
        return []

    def tick(self, now_ns: int) -> Iterable[Batch]:
        return [batch_of(float(self.points))]


class SinkConfig(RemoteExporterConfig):
    fails: int = 0
    endpoint: str = ""


class Sink(Exporter):
    """Records its batches. First raises the exceptions in `failures`, then waits for `gate` if it is set, and `pause`
    seconds. While `is_down`, each attempt fails."""

    Config = SinkConfig
    delivery = "remote"

    def __init__(self, config: SinkConfig, context: Any) -> None:
        super().__init__(config, context)
        self.batches: list[Batch] = []
        self.failures: list[BaseException] = [Retryable("down") for _ in range(config.fails)]
        self.is_down = False
        self.gate: Any = None
        self.judge: Callable[[Batch], None] = lambda _: None
        """Raises the answer to a batch."""
        self.pause = 0.0
        self.attempts = 0
        self.entered = self.left = False

    async def __aenter__(self) -> Self:
        self.entered = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.left = True

    async def export(self, batch: Batch) -> None:
        self.attempts += 1
        if self.failures:
            raise self.failures.pop(0)
        if self.is_down:
            raise Retryable("down")
        self.judge(batch)
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(self.pause)
        self.batches.append(batch)


class LocalSink(Sink):
    """A sink with the delivery of files."""

    delivery = "local"  # type: ignore[assignment]  # only its delivery differs


class Thermometer(Scraper):
    """A scraper with one point of 20."""

    def scrape(self) -> Batch:
        return batch_of(20.0)


Parts = Mapping[Kind, Mapping[str, type[Component]]]
"""Component classes by kind and type."""

PARTS: Parts = {
    "receivers": {"source": Source, "thermometer": Thermometer},
    "processors": {"doubler": Doubler, "keeper": Keeper, "ticker": Ticker},
    "exporters": {"sink": Sink},
    "extensions": {},
}


def registry_of(parts: Parts = PARTS) -> Registry:
    """A registry with only these classes."""

    def loader(cls: type[Component]) -> Any:
        return lambda: cls

    return Registry({kind: {name: loader(cls) for name, cls in types.items()} for kind, types in parts.items()})


def settings_of(text: str, parts: Parts = PARTS) -> Settings:
    """The validated settings of a YAML text, without the collector's own metrics."""
    quiet = "service::telemetry::metrics::level=none"
    return validate(load([f"yaml:{text}"], [quiet], {}), registry_of(parts), {})


def metrics_of(batches: Iterable[Batch]) -> list[Metric]:
    """All metrics of the batches, decoded from their bytes."""
    return [metric for batch in batches for metric in metrics_in(MetricsData.FromString(batch.bytes_of("metrics")))]
