"""Odd OTLP backends for tests: each counts the points that it acknowledges, and misbehaves in one way."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from tests.exporters.otlp.peers import serve_raw
from tests.reliability.odd_http import (
    HTTP,
    MIB,
    REJECTING,
    Tally,
    Writer,
    garbage,
    points_in,
    reset,
    serve_http,
    silence,
)

AnswerGrpc = Callable[[Any, int], Awaitable[bytes]]
"""Answers the request with this number (from 1), or aborts the call."""


async def refuse(call: Any, code: str, *, retry_after: float | None = None) -> None:
    if retry_after is not None:
        info = AnyMessage()
        info.Pack(RetryInfo(retry_delay=Duration(seconds=int(retry_after))))
        details = Status(details=[info]).SerializeToString()
        call.set_trailing_metadata((("grpc-status-details-bin", details),))
    await call.abort(grpc.StatusCode[code], "odd")


def answered(answer: bytes) -> AnswerGrpc:
    async def send(_call: Any, _number: int) -> bytes:
        return answer

    return send


def refused_at_first(times: int, code: str, retry_after: float | None = None) -> AnswerGrpc:
    async def send(call: Any, number: int) -> bytes:
        if number <= times:
            await refuse(call, code, retry_after=retry_after)
        return b""

    return send


async def hang_at_first(_call: Any, number: int) -> bytes:
    if number <= 3:
        await asyncio.sleep(60)
    return b""


GRPC: dict[str, AnswerGrpc] = {
    "good": answered(b""),
    "unavailable": refused_at_first(3, "UNAVAILABLE"),
    "exhausted_with_retry_info": refused_at_first(3, "RESOURCE_EXHAUSTED", 0),
    "exhausted_without_retry_info": refused_at_first(3, "RESOURCE_EXHAUSTED"),
    "invalid": refused_at_first(1 << 60, "INVALID_ARGUMENT"),
    "unauthenticated": refused_at_first(1 << 60, "UNAUTHENTICATED"),
    "unavailable_for_ever": refused_at_first(1 << 60, "UNAVAILABLE"),
    "hangs": hang_at_first,
    "undecodable": answered(b"\xff\xff"),
    "huge": answered(bytes(100 * MIB)),
    "partial": answered(REJECTING),
}
"""Backends over gRPC."""

RAW: dict[str, Callable[[Writer], Awaitable[None]]] = {"garbage": garbage, "reset": reset, "silence": silence}
"""Servers at a gRPC port that do not speak gRPC."""


PERMANENT = {"400_nested", "invalid"}
"""Backends whose answers drop each batch at once."""
NEVER = {
    "500",
    "302",
    "304",
    "huge_failure",
    "unauthenticated",
    "503_for_ever",
    "unavailable_for_ever",
    "expired",
    "down",
    "raw_garbage",
    "raw_reset",
    "raw_silence",
}
"""Backends that never acknowledge: batches are dropped after `max_elapsed_time`."""
SILENT = {"silence", "hangs", "raw_silence"}
"""Backends that do not answer some requests."""


@asynccontextmanager
async def serve_grpc(answer: AnswerGrpc, tally: Tally) -> AsyncIterator[int]:
    """Serves one backend on localhost; yields the port."""

    async def export(body: bytes, call: Any) -> bytes:
        points = points_in(body)
        tally.requests += 1
        tally.received += len(points)
        reply = await answer(call, tally.requests)
        tally.acknowledged.update(points)
        return reply

    async with serve_exports(export) as port:
        yield port


@asynccontextmanager
async def serve_exports(export: Callable[[bytes, Any], Awaitable[bytes]]) -> AsyncIterator[int]:
    """Serves requests with metrics on localhost; yields the port."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 * MIB), ("grpc.so_reuseport", 0)])
    handler = grpc.unary_unary_rpc_method_handler(export, None, None)
    service = "opentelemetry.proto.collector.metrics.v1.MetricsService"
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@dataclass
class Backends:
    """All odd backends at once, with the exporters of a collector that sends to them."""

    exporters: dict[str, dict[str, Any]] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)

    @asynccontextmanager
    async def serve(self, expired: ssl.SSLContext, ca_file: str) -> AsyncIterator[None]:
        """`expired` has a certificate that is not valid any more."""
        async with AsyncExitStack() as stack:
            for name, answer in HTTP.items():
                port = await stack.enter_async_context(serve_http(answer, self._tally(f"otlp_http/{name}")))
                self._add(f"otlp_http/{name}", f"http://127.0.0.1:{port}")
            for name, reply in GRPC.items():
                port = await stack.enter_async_context(serve_grpc(reply, self._tally(f"otlp_grpc/{name}")))
                self._add(f"otlp_grpc/{name}", f"http://127.0.0.1:{port}")
            for name, misbehave in RAW.items():
                port = await stack.enter_async_context(serve_raw(lambda _, writer, do=misbehave: do(writer)))  # type: ignore[misc]
                self._add(f"otlp_grpc/raw_{name}", f"http://127.0.0.1:{port}")
            good = HTTP["good"]
            port = await stack.enter_async_context(serve_http(good, self._tally("otlp_http/expired"), expired))
            self._add("otlp_http/expired", f"https://localhost:{port}", tls={"ca_file": ca_file})
            # Held, as another program could listen on a free port. Without listen(), connections are refused.
            closed = stack.enter_context(socket.socket())
            closed.bind(("127.0.0.1", 0))
            closed_port = closed.getsockname()[1]
            for transport in ("http", "grpc"):
                self._add(f"otlp_{transport}/down", f"http://127.0.0.1:{closed_port}")
            # Until the end, this one keeps what it cannot send.
            keep = {
                "retry_on_failure": {"initial_interval": "100ms", "max_interval": "100ms", "max_elapsed_time": "0s"}
            }
            self._add("otlp_http/down_kept", f"http://127.0.0.1:{closed_port}", **keep)
            yield

    def _tally(self, id_: str) -> Tally:
        return self.tallies.setdefault(id_, Tally())

    def _add(self, id_: str, endpoint: str, **options: Any) -> None:
        name = id_.partition("/")[2]
        elapsed = "500ms" if name in NEVER else "120s"
        retry = {"initial_interval": "50ms", "max_interval": "200ms", "max_elapsed_time": elapsed}
        defaults = {
            "timeout": "1s" if name in SILENT else "5s",
            "retry_on_failure": retry,
            "sending_queue": {"num_consumers": 3, "queue_size": 10_000},
        }
        self.exporters[id_] = {"endpoint": endpoint, **defaults, **options}
