"""The gRPC server of the receiver: its methods, and its options in terms of HTTP/2."""

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from otel_zernel.authentication import ServerAuthenticator
from otel_zernel.batch import Signal
from otel_zernel.component import Context
from otel_zernel_libraries.serving.grpc import HealthService, with_standard_services
from otel_zernel_libraries.serving.http2 import Http2Limits, Http2Server, Method, ServerParts
from otel_zernel_libraries.serving.misdirected import Misdirected
from otel_zernel_receivers.otlp.config import GrpcConfig
from otel_zernel_receivers.otlp.grpc.export import ExportMethod
from otel_zernel_receivers.otlp.intake import OtlpIntake

_PACKAGE: Final = "opentelemetry.proto.collector"
SERVICES: Final[Mapping[Signal, str]] = {
    "metrics": f"{_PACKAGE}.metrics.v1.MetricsService",
    "traces": f"{_PACKAGE}.trace.v1.TraceService",
    "logs": f"{_PACKAGE}.logs.v1.LogsService",
}
METHOD: Final = "Export"
FILES: Final = tuple(module.DESCRIPTOR for module in (metrics_service_pb2, trace_service_pb2, logs_service_pb2))
"""The descriptors of the files that declare the services."""


@asynccontextmanager
async def serve_grpc(
    config: GrpcConfig,
    listeners: Sequence[socket.socket],
    tls: Callable[[], ssl.SSLContext] | None,
    intake: OtlpIntake,
    context: Context,
    authenticator: ServerAuthenticator | None,
) -> AsyncIterator[None]:
    """Serves on listening sockets, and closes them at the end. Running calls then have 0.8 s to finish."""
    limits = limits_of(config)
    health = HealthService(name for signal, name in SERVICES.items() if signal in intake.signals)
    methods: dict[str, Method] = {
        f"/{name}/{METHOD}": ExportMethod(signal, intake, authenticator, limits.message)
        for signal, name in SERVICES.items()
    }
    route = with_standard_services(methods, health, SERVICES.values(), FILES)
    misdirected = Misdirected(f"{context.path}::protocols::grpc::endpoint", "grpc", context.clock)
    parts = ServerParts(route, intake.room, limits, context.clock.monotonic)
    server = Http2Server(parts, context.logger, tls, misdirected)
    async with server.serving(listeners, health.stop):
        yield


def limits_of(config: GrpcConfig) -> Http2Limits:
    """The limits that the options describe."""
    server, policy = config.keepalive.server_parameters, config.keepalive.enforcement_policy
    usual = Http2Limits()
    return Http2Limits(
        message=config.max_recv_msg_size_mib << 20 or usual.message,
        streams=config.max_concurrent_streams or usual.streams,
        ping_after=server.time,
        ping_time=server.timeout,
        idle_time=server.max_connection_idle,
        age=server.max_connection_age,
        age_grace=server.max_connection_age_grace,
        least_ping_interval=policy.min_time,
        pings_without_calls=policy.permit_without_stream,
    )
