"""What the SDKs of other languages and other collectors send to the otlp receiver arrives message by message."""

import asyncio
import base64
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc import _log_exporter as grpc_logs
from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as grpc_metrics
from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc_traces
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http import _log_exporter as http_logs
from opentelemetry.exporter.otlp.proto.http import metric_exporter as http_metrics
from opentelemetry.exporter.otlp.proto.http import trace_exporter as http_traces
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_zernel.batch import STABLE_SIGNALS, Batch, Signal, points
from otel_zernel.testing import until
from otel_zernel_receivers.otlp import OtlpReceiver
from tests.interop.installed import find_peer, miss
from tests.interop.rotel import forwarding, spans_of, values_of
from tests.interop.test_rotel import made, send, steps
from tests.receivers.otlp.serving import Recording, receiving

TEXTS = ["", "plain", "ünïcödé 🚀", 'quote " and \\ and \0', "x" * 10_000]
ATTRIBUTES: dict[str, Any] = {
    "empty": "",
    "yes": True,
    "integer": 2**53,
    "negative": -7,
    "double": 0.1,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "list": ["a", "b"],
    "numbers": [1, 2],
    **{f"text.{index}": text for index, text in enumerate(TEXTS)},
}
RESOURCE = Resource.create({"service.name": "python", **ATTRIBUTES})


@pytest.fixture
async def downstream() -> Recording:
    return Recording()


@pytest.fixture
async def receiver(downstream: Recording) -> AsyncIterator[OtlpReceiver]:
    async with receiving(downstream) as one:
        yield one


def message_bits(message: Message) -> bytes:
    """Compares NaN as equal."""
    return message.SerializeToString(deterministic=True)


def measured() -> Any:
    """Metrics of every instrument, with exemplars."""
    reader = InMemoryMetricReader()
    exponential = View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation())
    provider = MeterProvider([reader], RESOURCE, views=[exponential])
    meter = provider.get_meter("scope", "1.2", "https://example.com/schema", {"scope": "attribute"})

    def observe(_: CallbackOptions) -> list[Observation]:
        return [Observation(-0.5, ATTRIBUTES), Observation(2**40, {})]

    meter.create_observable_gauge("observable_gauge", [observe])
    meter.create_observable_up_down_counter("observable_up_down_counter", [observe])
    meter.create_observable_counter("observable_counter", [lambda _: [Observation(2**40, ATTRIBUTES)]])
    counter, up_down = meter.create_counter("counter", "By", "bytes"), meter.create_up_down_counter("up-down")
    histograms = [meter.create_histogram("histogram", "s"), meter.create_histogram("exponential")]
    gauge = meter.create_gauge("gauge")
    with TracerProvider().get_tracer("t").start_as_current_span("step"):  # the context of exemplars
        for value in (1, 2.5, 1e-9, 1e12):
            counter.add(value, ATTRIBUTES)
            up_down.add(-value, ATTRIBUTES)
            gauge.set(value, ATTRIBUTES)
            for histogram in histograms:
                histogram.record(value, ATTRIBUTES)
    data = reader.get_metrics_data()
    provider.shutdown()
    return data


def traced() -> Any:
    """Spans with everything that a span can have."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("scope", "1.2")
    with tracer.start_as_current_span("parent", kind=trace.SpanKind.SERVER, attributes=ATTRIBUTES) as parent:
        links = [trace.Link(parent.get_span_context(), ATTRIBUTES)]
        with tracer.start_as_current_span("", links=links) as child:
            child.add_event("event", ATTRIBUTES)
            child.record_exception(ValueError("x"))
            child.set_status(trace.StatusCode.ERROR, "failed")
    return memory.get_finished_spans()


def logged() -> Any:
    """Log records with bodies of every type."""
    memory = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider = LoggerProvider(RESOURCE)
    provider.add_log_record_processor(SimpleLogRecordProcessor(memory))
    logger = provider.get_logger("scope")
    bodies: list[Any] = [*TEXTS, 7, 0.5, True, b"bytes", {"nested": {"list": [1, "two", [3.0]]}}, None]
    for body in bodies:
        record = LogRecord(
            timestamp=1, observed_timestamp=2, severity_text="WARN", severity_number=SeverityNumber.WARN, body=body
        )
        record.attributes = ATTRIBUTES
        logger.emit(record)
    return memory.get_finished_logs()


PYTHON: dict[Signal, tuple[Callable[[], Any], Callable[[Any], Message], Any, Any]] = {
    "metrics": (measured, encode_metrics, grpc_metrics.OTLPMetricExporter, http_metrics.OTLPMetricExporter),
    "traces": (traced, encode_spans, grpc_traces.OTLPSpanExporter, http_traces.OTLPSpanExporter),
    "logs": (logged, encode_logs, grpc_logs.OTLPLogExporter, http_logs.OTLPLogExporter),
}


def send_by_python(signal: Signal, receiver: OtlpReceiver, protocol: str) -> Message:
    """Sends by the exporter of the Python SDK. Returns the message that it encodes."""
    make, encode, over_grpc, over_http = PYTHON[signal]
    data = make()
    if protocol == "grpc":
        exporter = over_grpc(endpoint=f"http://{receiver.addresses['grpc']}", insecure=True)
    else:
        compression = Compression.Gzip if protocol == "http gzip" else Compression.NoCompression
        endpoint = f"http://{receiver.addresses['http']}/v1/{signal}"
        exporter = over_http(endpoint=endpoint, compression=compression)
    assert exporter.export(data).name == "SUCCESS"
    exporter.shutdown()
    return encode(data)


@pytest.mark.parametrize("protocol", ["grpc", "http", "http gzip"])
@pytest.mark.parametrize("signal", STABLE_SIGNALS)
async def test_the_python_sdk(receiver: OtlpReceiver, downstream: Recording, signal: Signal, protocol: str) -> None:
    expected = await asyncio.to_thread(send_by_python, signal, receiver, protocol)
    assert len(downstream.batches) == 1
    arrived = downstream.batches[0].message(signal)
    assert message_bits(arrived) == message_bits(expected)
    assert downstream.batches[0].count_of(signal) > 1


def test_the_python_sdk_sends_every_kind_of_metric_and_exemplars() -> None:
    encoded = encode_metrics(measured())
    metrics = [metric for scope in encoded.resource_metrics[0].scope_metrics for metric in scope.metrics]
    assert {metric.WhichOneof("data") for metric in metrics} == {"gauge", "sum", "histogram", "exponential_histogram"}
    assert any(point.exemplars for metric in metrics for point in points(metric))


PACKAGES = [
    "@opentelemetry/api",
    "@opentelemetry/resources",
    *(f"@opentelemetry/sdk-{kind}" for kind in ("metrics", "trace-base", "logs")),
    "@opentelemetry/otlp-transformer",
    *(
        f"@opentelemetry/exporter-{one}-otlp-{by}"
        for one in ("metrics", "trace", "logs")
        for by in ("grpc", "http", "proto")
    ),
]


@pytest.fixture(scope="session")
def javascript_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the JavaScript SDK."""
    for program in ("npm", "node"):
        if shutil.which(program) is None:
            miss(f"the program {program} is missing: install Node.js 18.19 or newer")
    folder = tmp_path_factory.mktemp("javascript")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    if done.returncode:
        miss(f"npm cannot install the JavaScript SDK: {done.stderr[-300:]}")
    return folder


async def test_the_javascript_sdk(receiver: OtlpReceiver, downstream: Recording, javascript_packages: Path) -> None:
    script = Path(__file__).with_name("javascript.mjs")
    process = await asyncio.create_subprocess_exec(
        "node",
        str(script),
        *(str(receiver.addresses[name]) for name in ("grpc", "http")),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PACKAGES": str(javascript_packages)},
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    expected = json.loads(output)
    for signal in STABLE_SIGNALS:
        arrived = [batch.message(signal) for batch in downstream.batches if signal in batch.signals]
        assert len(arrived) == 3, "gRPC, protobuf and JSON over HTTP"
        wanted = type(arrived[0]).FromString(base64.b64decode(expected[signal]))
        assert [message_bits(one) for one in arrived] == [message_bits(wanted)] * 3


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_rotel(
    receiver: OtlpReceiver,
    downstream: Recording,
    protocol: str,
    unused_tcp_port_factory: Callable[[], int],
    tmp_path: Path,
) -> None:
    package = importlib.util.find_spec("rotel")
    folder = Path(package.origin).parent if package and package.origin else Path()
    program = find_peer(str(folder / "rotel-agent"))
    port, metrics, spans = unused_tcp_port_factory(), made(), steps()
    endpoint = f"http://{receiver.addresses[protocol]}"
    async with forwarding(program, tmp_path, port, unused_tcp_port_factory(), endpoint, protocol):
        await send("grpc", f"http://127.0.0.1:{port}", {}, metrics, spans)
        await until(lambda: downstream.point_count >= metrics.point_count, within=60)
        await until(lambda: Batch.join(downstream.batches).count_of("traces") >= spans.count_of("traces"), within=60)
    arrived = Batch.join(downstream.batches)
    assert values_of(arrived.bytes_of("metrics")) == values_of(metrics.bytes_of("metrics"))
    assert spans_of(arrived.spans) == spans_of(spans.spans)
