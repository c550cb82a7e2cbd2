"""A running otlp receiver for the tests, and requests to send to it."""

import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import cramjam
import grpc
import zstandard
from opentelemetry.metrics import Meter
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, MetricsData, NumberDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from otel_zernel.batch import ALL_SIGNALS, Signal
from otel_zernel.batch.signals import SignalData
from otel_zernel.clock import SystemClock
from otel_zernel.component import Emit, Extension
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.otlp import OtlpReceiver
from otel_zernel_receivers.otlp.grpc.server import SERVICES
from tests.background import in_background
from tests.otlp import data, logs, profiles, traces

COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "zlib": zlib.compress,
    "deflate": zlib.compress,
    "snappy": lambda body: bytes(cramjam.snappy.compress_raw(body)),
    "x-snappy-framed": lambda body: bytes(cramjam.snappy.compress(body)),
    "lz4": lambda body: bytes(cramjam.lz4.compress(body)),
}
PROTO = {"content-type": "application/x-protobuf"}
BOTH: Mapping[str, Any] = {"grpc": {"endpoint": "localhost:0"}, "http": {"endpoint": "localhost:0"}}


@asynccontextmanager
async def receiving(
    emit: Emit,
    protocols: Mapping[str, Any] = BOTH,
    *,
    signals: frozenset[Signal] = ALL_SIGNALS,
    extensions: Mapping[str, Extension] | None = None,
    meter: Meter | None = None,
    **options: Any,
) -> AsyncIterator[OtlpReceiver]:
    """A receiver that listens. Leaving stops it."""
    config = OtlpReceiver.Config.model_validate({"protocols": protocols, **options})
    context = make_context("receivers", "otlp", clock=SystemClock(), extensions=extensions, meter=meter)
    receiver = OtlpReceiver(config, replace(context, signals=signals))
    async with in_background(receiver.run(emit)) as running:
        await until(lambda: running.done() or len(receiver.addresses) == len(protocols))
        if running.done():
            await running
        yield receiver


def call(channel: grpc.aio.Channel, signal: Signal = "metrics") -> Any:
    """The method `Export` of a signal, which takes and returns bytes."""
    return channel.unary_unary(f"/{SERVICES[signal]}/Export", None, None)


class Recording(Downstream):
    """A downstream that also records the transport of each batch."""

    def __init__(self, refuse: int = 0) -> None:
        super().__init__(refuse=refuse)
        self.transports: list[str] = []

    async def __call__(self, batch: Any, *, transport: str = "") -> None:
        self.transports.append(transport)
        await super().__call__(batch, transport=transport)


def gauge(points: int = 3, *, text: str = "GPU-0") -> MetricsData:
    """A gauge with `points` points of 8 attributes."""
    attributes = [
        KeyValue(key=f"attribute.{index}", value=AnyValue(string_value=f"{text}-{index}")) for index in range(8)
    ]
    made = [NumberDataPoint(as_double=index, time_unix_nano=10**18, attributes=attributes) for index in range(points)]
    metric = Metric(name="hw.gpu.utilization", unit="1", gauge=Gauge(data_points=made))
    return data(metric)


def step() -> TracesData:
    """One span."""
    span = Span(trace_id=bytes(range(16)), span_id=bytes(range(8)), name="step")
    return traces(span)


def line() -> LogsData:
    """One log record."""
    record = LogRecord(body=AnyValue(string_value="loss is NaN"))
    return logs(record)


REQUESTS: Mapping[Signal, SignalData] = {
    "metrics": gauge(),
    "traces": step(),
    "logs": line(),
    "profiles": profiles(7, 9),
}
"""An export request of each signal."""
