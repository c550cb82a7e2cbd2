"""Writes files with the file exporter, and replays them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel.component import Context
from otel_zernel.testing import Downstream, Dropped, FakeClock, make_context
from otel_zernel_exporters.file import FileExporter
from otel_zernel_receivers.otlp_json_file import OtlpJsonFileReceiver
from tests import otlp
from tests.otlp import data, logs, metrics_in, number, traces

SECOND = 10**9
START = 1_600_000_000 * SECOND
FORMATS: list[dict[str, Any]] = [
    {"format": "json"},
    {"format": "proto"},
    {"format": "json", "compression": "zstd"},
    {"format": "proto", "compression": "zstd"},
]


async def write(path: Path, *batches: Batch, **settings: Any) -> None:
    config = FileExporter.Config.model_validate({"path": str(path), **settings})
    async with FileExporter(config, make_context("exporters", "file")) as exporter:
        for batch in batches:
            await exporter.export(batch)


def receiver(context: Context | None = None, **config: Any) -> OtlpJsonFileReceiver:
    return OtlpJsonFileReceiver(OtlpJsonFileReceiver.Config.model_validate(config), context or make_context())


@dataclass
class Replay:
    """One replay to its end."""

    clock: Clock = field(default_factory=FakeClock)
    downstream: Downstream = field(default_factory=Downstream)
    times: list[float] = field(default_factory=list)
    """When each batch was emitted, in seconds of the clock."""
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        self.context = make_context(clock=self.clock)

    async def __call__(self, batch: Batch, *, transport: str = "") -> None:
        await self.downstream(batch)
        self.times.append(self.clock.monotonic())

    async def run(self, *paths: Path, **config: Any) -> list[Batch]:
        await receiver(self.context, include=[str(path) for path in paths], **config).run(self)
        return self.downstream.batches

    @property
    def dropped(self) -> dict[str, int]:
        assert isinstance(self.context.drop, Dropped)
        return dict(self.context.drop.counts)


def gauge(value: int, time_ns: int = START) -> Batch:
    point = number(value, time=time_ns, start_time_unix_nano=START - SECOND)
    return Batch(metrics=data(otlp.gauge("steps", point)))


def span(start_ns: int = START) -> Batch:
    half = Span.Event(name="half", time_unix_nano=start_ns + SECOND)
    one = Span(name="step", trace_id=b"\x01" * 16, span_id=b"\x02" * 8, events=[half])
    one.start_time_unix_nano, one.end_time_unix_nano = start_ns, start_ns + 2 * SECOND
    return Batch(spans=traces(one))


def log(time_ns: int = START) -> Batch:
    return Batch(logs=logs(LogRecord(observed_time_unix_nano=time_ns, body=AnyValue(string_value="started"))))


def values(batches: list[Batch]) -> list[int]:
    return [
        point.as_int for batch in batches for metric in metrics_in(batch.metrics) for point in metric.gauge.data_points
    ]
