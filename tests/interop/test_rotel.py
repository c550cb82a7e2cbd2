"""rotel, an OpenTelemetry collector written in Rust, takes what we send and forwards every point and span to a sink."""

import asyncio
import importlib.util
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import zstandard
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from otel_zernel.batch import Batch, points
from otel_zernel.config.types import Address
from otel_zernel.errors import Permanent
from otel_zernel.points import Descriptor, KnownSeries, Scope, Series, encode_point_attributes, encode_resource
from otel_zernel.serving import serve
from otel_zernel.testing import Downstream, make_context
from otel_zernel_exporters.otlp import OtlpGrpcExporter, OtlpHttpExporter
from otel_zernel_exporters.otlp.config import OtlpGrpcConfig, OtlpHttpConfig
from tests.exporters.otlp.peers import GrpcSink

RECORDED = Path("../shared/data/dcgm_metrics_20250718_134233.csv")

Identity = tuple[Any, ...]


@dataclass(frozen=True)
class Rotel:
    """A running rotel and the sink it forwards to."""

    grpc: str
    http: str
    sink: GrpcSink

    def values(self) -> dict[Identity, float]:
        """The value of every point that came out."""
        return values_of(b"".join(self.sink.of("metrics")))

    def spans(self) -> Counter[bytes]:
        """Every span that came out."""
        return spans_of(TracesData.FromString(b"".join(self.sink.of("trace"))))


def values_of(metrics: bytes) -> dict[Identity, float]:
    return dict(_values(MetricsData.FromString(metrics)))


def _values(metrics: MetricsData) -> Iterator[tuple[Identity, float]]:
    for resource in metrics.resource_metrics:
        host = resource.resource.SerializeToString(deterministic=True)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in points(metric):
                    value = getattr(point, point.WhichOneof("value"))
                    point.ClearField("value")
                    rest = point.SerializeToString(deterministic=True)
                    yield (host, scope.scope.name, metric.name, metric.unit, rest), value


def spans_of(traces: TracesData) -> Counter[bytes]:
    scopes = (scope for resource in traces.resource_spans for scope in resource.scope_spans)
    return Counter(span.SerializeToString(deterministic=True) for scope in scopes for span in scope.spans)


@pytest.fixture
async def rotel(
    peer: Callable[[str], Path], unused_tcp_port_factory: Callable[[], int], tmp_path: Path
) -> AsyncIterator[Rotel]:
    package = importlib.util.find_spec("rotel")
    folder = Path(package.origin).parent if package and package.origin else Path()
    program, sink = peer(str(folder / "rotel-agent")), GrpcSink()
    grpc, http = (f"127.0.0.1:{unused_tcp_port_factory()}" for _ in range(2))
    async with sink.serve() as port:
        arguments = ["--otlp-grpc-endpoint", grpc, "--otlp-http-endpoint", http, "--batch-timeout", "50ms"]
        arguments += ["--exporter", "otlp", "--otlp-exporter-endpoint", f"http://localhost:{port}"]
        with (tmp_path / "log").open("w") as log:
            process = await asyncio.create_subprocess_exec(program, "start", *arguments, stdout=log, stderr=log)
        try:
            async with asyncio.timeout(20):
                await listening(grpc, process, tmp_path / "log")
                await listening(http, process, tmp_path / "log")
            yield Rotel(grpc, http, sink)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def listening(address: str, process: Process, log: Path) -> None:
    host, _, port = address.partition(":")
    while True:
        if process.returncode is not None:
            pytest.fail(f"rotel ended by itself (it needs libpython3.11):\n{log.read_text()}")  # noqa: ASYNC240  # a test may block
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return await writer.wait_closed()


async def recorded() -> Batch:
    """dcgm-exporter's own recording of 247 GPUs, as the csv receiver reads it."""
    from otel_zernel_receivers.csv import CsvReceiver

    if not RECORDED.exists():  # noqa: ASYNC240  # a test may block
        pytest.skip(f"the recording is not here: {RECORDED}")
    downstream = Downstream()
    await CsvReceiver(CsvReceiver.Config.model_validate({"files": [str(RECORDED)]}), make_context()).run(downstream)
    batch = Batch.join(downstream.batches)
    assert batch.point_count == 2470
    return batch


async def made() -> Batch:
    """A scrape of 1,000 series, no two values alike."""
    gauge, resource, scope = Descriptor("hw.power", "W"), encode_resource({"host.name": "node-1"}), Scope("test")
    attributes = (encode_point_attributes({"hw.id": f"GPU-{index}"}) for index in range(1000))
    series = KnownSeries([Series(resource, scope, gauge, one) for one in attributes])
    return Batch.from_bytes(metrics=series.encode(np.linspace(0.1, 700, 1000), 1_700_000_000_000_000_000))


def steps() -> Batch:
    """A trace of ten steps and what led to them."""
    spans = [
        Span(
            trace_id=bytes(range(16)),
            span_id=bytes([index] * 8),
            parent_span_id=bytes([index - 1] * 8) if index > 1 else b"",
            name=f"step {index}",
            start_time_unix_nano=1_700_000_000_000_000_000 + index,
            end_time_unix_nano=1_700_000_000_000_000_500 + index,
            links=[Span.Link(trace_id=bytes(range(16, 32)), span_id=bytes(range(8)))],
        )
        for index in range(1, 11)
    ]
    return Batch(spans=TracesData(resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])]))


@asynccontextmanager
async def without_zstd(upstream: str) -> AsyncIterator[str]:
    """A gateway that unpacks zstd, which rotel's receiver does not."""

    async def forward(request: Request) -> Response:
        assert request.headers["content-encoding"] == "zstd"
        body = zstandard.ZstdDecompressor().decompress(await request.body())
        kept = {"content-type": request.headers["content-type"]}
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"{upstream}{request.url.path}", content=body, headers=kept)
        return Response(answer.content, answer.status_code, {"content-type": answer.headers["content-type"]})

    app = Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])])
    async with serve(app, Address("localhost", 0), "test") as address:
        yield f"http://localhost:{address.port}"


async def arrived(rotel: Rotel, metrics: Batch, spans: Batch, tolerance: float = 0.0) -> None:
    """Waits for everything and compares it; `tolerance` is relative."""
    async with asyncio.timeout(20):
        while len(rotel.values()) < metrics.point_count or rotel.spans().total() < spans.span_count:
            await rotel.sink.next()
    assert rotel.values() == pytest.approx(values_of(metrics.metrics_bytes()), rel=tolerance, abs=0)
    assert rotel.spans() == spans_of(spans.spans)


# rotel's JSON reader (serde_json without float_roundtrip) may miss a double by its last bit.
LAST_BIT = {"proto": 0.0, "json": 2.3e-16}


sources = pytest.mark.parametrize("source", [made, recorded])


@sources
@pytest.mark.parametrize("compression", ["gzip", "none"])
async def test_every_point_and_span_arrives_by_grpc(rotel: Rotel, source: Any, compression: str) -> None:
    metrics, spans = await source(), steps()
    config = OtlpGrpcConfig.model_validate({"endpoint": f"http://{rotel.grpc}", "compression": compression})
    async with OtlpGrpcExporter(config, make_context("exporters", "otlp_grpc")) as exporter:
        await exporter.export(metrics)
        await exporter.export(spans)
    await arrived(rotel, metrics, spans)


async def send_by_http(url: str, encoding: str, compression: str, *batches: Batch) -> None:
    config = OtlpHttpConfig.model_validate({"endpoint": url, "encoding": encoding, "compression": compression})
    async with OtlpHttpExporter(config, make_context("exporters", "otlp_http")) as exporter:
        for batch in batches:
            await exporter.export(batch)


@sources
@pytest.mark.parametrize("encoding", ["proto", "json"])
@pytest.mark.parametrize("compression", ["gzip", "none"])
async def test_every_point_and_span_arrives_by_http(rotel: Rotel, source: Any, encoding: str, compression: str) -> None:
    metrics, spans = await source(), steps()
    await send_by_http(f"http://{rotel.http}", encoding, compression, metrics, spans)
    await arrived(rotel, metrics, spans, LAST_BIT[encoding])


@sources
@pytest.mark.parametrize("encoding", ["proto", "json"])
async def test_every_point_and_span_arrives_by_http_and_zstd(rotel: Rotel, source: Any, encoding: str) -> None:
    metrics, spans = await source(), steps()
    async with without_zstd(f"http://{rotel.http}") as gateway:
        await send_by_http(gateway, encoding, "zstd", metrics, spans)
    await arrived(rotel, metrics, spans, LAST_BIT[encoding])


async def test_what_rotel_does_not_take_is_a_permanent_failure_with_its_reason(rotel: Rotel) -> None:
    config = OtlpGrpcConfig.model_validate({"endpoint": f"http://{rotel.grpc}", "compression": "deflate"})
    async with OtlpGrpcExporter(config, make_context("exporters", "otlp_grpc")) as exporter:
        with pytest.raises(Permanent, match="UNIMPLEMENTED: Content is compressed with `deflate`"):
            await exporter.export(steps())
