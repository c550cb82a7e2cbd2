"""Peers of the OTLP exporters: a gRPC server and an HTTP server that record their requests."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Descriptor, Scope, Series, encode_point_attributes, encode_resource
from otel_zernel.types import Address
from otel_zernel_libraries.arrays import KnownSeries
from otel_zernel_libraries.serving.serving import serve
from tests.otlp import logs, profiles, traces

RESPONSES: dict[str, type[Message]] = {
    "metrics.v1.MetricsService": ExportMetricsServiceResponse,
    "trace.v1.TraceService": ExportTraceServiceResponse,
    "logs.v1.LogsService": ExportLogsServiceResponse,
    "profiles.v1development.ProfilesService": ExportProfilesServiceResponse,
}


def metrics_batch(count: int = 3) -> Batch:
    """A gauge with `count` points and the values 0, 1, 2, ..."""
    resource, scope = encode_resource({"host.name": "node-1"}), Scope("test", "1")
    gauge = Descriptor("hw.gpu.utilization", "1")
    attributes = (encode_point_attributes({"hw.id": f"GPU-{index}"}) for index in range(count))
    series = KnownSeries([Series(resource, scope, gauge, attribute) for attribute in attributes])
    return Batch.from_bytes(metrics=series.encode(np.arange(count, dtype=np.float64), 1_700_000_000_000_000_000))


def spans_batch() -> Batch:
    """One span."""
    span = Span(trace_id=bytes(range(16)), span_id=bytes(range(8)), name="step")
    return Batch(spans=traces(span))


def logs_batch() -> Batch:
    """One log record."""
    record = LogRecord(body=AnyValue(string_value="loss is NaN"), severity_text="WARN", time_unix_nano=1)
    return Batch(logs=logs(record))


def profiles_batch() -> Batch:
    """Two samples of one stack."""
    return Batch(profiles=profiles(7, 9))


GrpcAnswer = Message | bytes | Callable[[Any], Awaitable[None]]


@dataclass
class GrpcSink:
    """An OTLP server that records requests as bytes. It sends the configured answers first, then successful ones."""

    services: list[str] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    metadata: list[dict[str, str | bytes]] = field(default_factory=list)
    answers: deque[GrpcAnswer] = field(default_factory=deque)
    peers: list[dict[str, Any]] = field(default_factory=list)

    _came: asyncio.Event = field(default_factory=asyncio.Event)

    async def next(self) -> None:
        """Returns when a request has arrived since the last call."""
        await self._came.wait()
        self._came.clear()

    def of(self, signal: str) -> list[bytes]:
        """The requests of one signal: metrics, trace or logs."""
        named = zip(self.services, self.requests, strict=True)
        return [request for service, request in named if service.startswith(signal)]

    @asynccontextmanager
    async def serve(
        self, credentials: grpc.ServerCredentials | None = None, port: int = 0, host: str = "localhost"
    ) -> AsyncIterator[int]:
        """Serves; yields the port."""
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers([self._handler(name) for name in RESPONSES])
        address = f"{host}:{port}"
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        await server.start()
        try:
            yield port
        finally:
            await server.stop(None)

    def _handler(self, service: str) -> "grpc.GenericRpcHandler[Any, Any]":
        response = RESPONSES[service]

        async def export(message: bytes, context: Any) -> Message | bytes:
            self.services.append(service)
            self.requests.append(message)
            self._came.set()
            self.metadata.append(dict(context.invocation_metadata()))
            self.peers.append(dict(context.auth_context()))
            answer = self.answers.popleft() if self.answers else response()
            if isinstance(answer, Message | bytes):
                return answer
            await answer(context)
            return response()

        def encode(answer: Message | bytes) -> bytes:
            return answer if isinstance(answer, bytes) else answer.SerializeToString()

        handler = grpc.unary_unary_rpc_method_handler(export, None, encode)
        return grpc.method_handlers_generic_handler(f"opentelemetry.proto.collector.{service}", {"Export": handler})


@dataclass
class Posted:
    """One request to the HTTP sink."""

    path: str
    headers: dict[str, str]
    body: bytes
    query: str


@dataclass
class HttpSink:
    """An HTTP server that records requests. It sends the configured answers first, then empty ones with status 200."""

    requests: list[Posted] = field(default_factory=list)
    answers: deque[Response] = field(default_factory=deque)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serves on localhost; yields the URL."""
        app = Starlette(routes=[Route("/{path:path}", self._keep, methods=["POST"])])
        async with serve(app, Address("localhost", 0), "test") as address:
            yield f"http://localhost:{address.port}"

    async def _keep(self, request: Request) -> Response:
        self.requests.append(Posted(request.url.path, dict(request.headers), await request.body(), request.url.query))
        return self.answers.popleft() if self.answers else Response()


Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serve_raw(handle: Handle, ssl: SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A TCP server of one function for each connection; yields the port. At the end every connection is closed."""
    open_connections: set[asyncio.Task[None]] = set()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        open_connections.add(task)  # type: ignore[arg-type]  # a coroutine that runs has a task
        try:
            await handle(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            open_connections.discard(task)

    server = await asyncio.start_server(serve_one, host, 0, ssl=ssl)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(open_connections):
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)
