"""Runs rotel, an OpenTelemetry collector in Rust, between our exporter and a sink."""

import asyncio
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from otel_zernel.batch import points
from otel_zernel.types import Address
from otel_zernel_libraries.serving.serving import serve
from tests.exporters.otlp.peers import GrpcSink

Identity = tuple[Any, ...]

LAST_BIT = {"proto": 0.0, "json": 2.3e-16}
"""Relative tolerance: rotel's JSON parser (serde_json without float_roundtrip) may change the last bit of a double."""


@dataclass(frozen=True)
class Rotel:
    """A running rotel and the sink it forwards to."""

    grpc: str
    http: str
    sink: GrpcSink

    def values(self) -> dict[Identity, float]:
        """The value of every point in the sink."""
        return values_of(b"".join(self.sink.of("metrics")))

    def spans(self) -> Counter[bytes]:
        """Every span in the sink."""
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


@asynccontextmanager
async def running(program: Path, folder: Path, grpc_port: int, http_port: int) -> AsyncIterator[Rotel]:
    """A rotel that listens on these ports and forwards to a sink. Its log is in the folder."""
    sink = GrpcSink()
    async with (
        sink.serve() as port,
        forwarding(program, folder, grpc_port, http_port, f"http://localhost:{port}", "grpc"),
    ):
        yield Rotel(f"127.0.0.1:{grpc_port}", f"127.0.0.1:{http_port}", sink)


@asynccontextmanager
async def forwarding(
    program: Path, folder: Path, grpc_port: int, http_port: int, endpoint: str, protocol: str
) -> AsyncIterator[None]:
    """A rotel that listens on these ports and forwards by `grpc` or `http`. Its log is in the folder."""
    grpc, http = f"127.0.0.1:{grpc_port}", f"127.0.0.1:{http_port}"
    arguments = ["--otlp-grpc-endpoint", grpc, "--otlp-http-endpoint", http, "--batch-timeout", "50ms"]
    arguments += ["--exporter", "otlp", "--otlp-exporter-endpoint", endpoint, "--otlp-exporter-protocol", protocol]
    with (folder / "rotel.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(program, "start", *arguments, stdout=log, stderr=log)
    try:
        async with asyncio.timeout(60):
            await listening(grpc, process, folder / "rotel.log")
            await listening(http, process, folder / "rotel.log")
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def listening(address: str, process: Process, log: Path) -> None:
    host, _, port = address.partition(":")
    while True:
        if process.returncode is not None:
            pytest.fail(f"it ended by itself:\n{log.read_text()}")  # noqa: ASYNC240  # a test may block
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return await writer.wait_closed()


@asynccontextmanager
async def without_zstd(upstream: str) -> AsyncIterator[str]:
    """A gateway that decompresses zstd, which rotel's receiver does not support."""

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
