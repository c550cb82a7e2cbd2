"""The gRPC server of the receiver."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from otel_zernel.authentication import ServerAuthenticator
from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel_receivers.otlp.config import GrpcConfig
from otel_zernel_receivers.otlp.grpc_export import ExportCalls, Reads
from otel_zernel_receivers.otlp.health_service import NAME, HealthService
from otel_zernel_receivers.otlp.intake import Intake
from otel_zernel_receivers.otlp.reflection import ReflectionService
from otel_zernel_receivers.otlp.services import METHOD, SERVICES

GRACE: Final = 0.8
"""Seconds in which calls may finish at the end. A receiver ends within 1 s."""
_SWEEP: Final = 0.25
"""Seconds between two checks for slow messages."""
_CONNECTIONS: Final = 4096
"""Open connections of one server. gRPC closes more at once."""
_STREAMS: Final = 1000
"""Concurrent calls of one connection, unless configured. Clients wait beyond."""


class _Methods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # a plain class at run time
    """Finds the handler of a call."""

    def __init__(self, handlers: "dict[str, grpc.RpcMethodHandler[Any, Any]]") -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        return self._handlers.get(handler_call_details.method)


@asynccontextmanager
async def serve_grpc(
    config: GrpcConfig,
    target: str,
    credentials: grpc.ServerCredentials | None,
    intake: Intake,
    context: Context,
    authenticator: ServerAuthenticator | None,
) -> AsyncIterator[int]:
    """Serves on a gRPC target (`127.0.0.1:4317`, `unix:/run/otlp.sock`). Yields the port.

    Raises `CannotStart` if the target is taken.
    """
    reads = Reads(context.clock.monotonic)
    health = HealthService(SERVICES[signal] for signal in SERVICES if signal in intake.signals)
    handlers = {**health.handlers(), **ReflectionService((*SERVICES.values(), NAME)).handlers()}
    for signal, name in SERVICES.items():
        calls = ExportCalls(signal, intake, reads, authenticator)
        handlers[f"/{name}/{METHOD}"] = grpc.stream_unary_rpc_method_handler(calls.export)
    server = grpc.aio.server(options=_options(config))
    server.add_generic_rpc_handlers((_Methods(handlers),))
    port = _bind(server, target, credentials, f"{context.path}::protocols::grpc::endpoint")
    await server.start()
    sweeping = asyncio.create_task(_sweep(reads), name=f"{context.path} slow messages")
    try:
        yield port
    finally:
        sweeping.cancel()
        health.stop()
        await server.stop(GRACE)


def _bind(server: grpc.aio.Server, target: str, credentials: grpc.ServerCredentials | None, setting: str) -> int:
    try:
        if credentials:
            return server.add_secure_port(target, credentials)
        return server.add_insecure_port(target)
    except RuntimeError as error:
        raise CannotStart(f"{setting}: cannot listen on {target}; another program uses it") from error


async def _sweep(reads: Reads) -> None:
    while True:
        await asyncio.sleep(_SWEEP)
        reads.sweep()


def _options(config: GrpcConfig) -> list[tuple[str, int]]:
    """https://grpc.github.io/grpc/core/group__grpc__arg__keys.html. Times are in ms."""
    server, policy = config.keepalive.server_parameters, config.keepalive.enforcement_policy
    options = {
        "grpc.so_reuseport": 0,  # or a second server on the port is no error, and takes half of the connections
        "grpc.max_receive_message_length": (config.max_recv_msg_size_mib or 4) << 20,
        "grpc.max_concurrent_streams": config.max_concurrent_streams or _STREAMS,
        "grpc.max_allowed_incoming_connections": _CONNECTIONS,
        "grpc.server_handshake_timeout_ms": 10_000,
        "grpc.keepalive_time_ms": _milliseconds(server.time),
        "grpc.keepalive_timeout_ms": _milliseconds(server.timeout),
        "grpc.keepalive_permit_without_calls": int(policy.permit_without_stream),
        "grpc.http2.min_recv_ping_interval_without_data_ms": _milliseconds(policy.min_time),
        "grpc.max_connection_idle_ms": _milliseconds(server.max_connection_idle),
        "grpc.max_connection_age_ms": _milliseconds(server.max_connection_age),
        "grpc.max_connection_age_grace_ms": _milliseconds(server.max_connection_age_grace),
        "grpc.http2.write_buffer_size": config.write_buffer_size,
    }
    return [(name, value) for name, value in options.items() if value or name == "grpc.so_reuseport"]


def _milliseconds(seconds: float) -> int:
    """gRPC takes 32-bit integers: 24 days at most."""
    return min(round(seconds * 1000), 2**31 - 1)
