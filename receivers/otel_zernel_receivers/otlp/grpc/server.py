"""The gRPC server of the receiver: its options in terms of HTTP/2, and the `Export` methods.

A method checks credentials first, then reads the message as far as there is room.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from otel_zernel.authentication import ServerAuthenticator
from otel_zernel.batch import Signal
from otel_zernel.component import Context
from otel_zernel_libraries.serving.grpc import HealthService, with_standard_services
from otel_zernel_libraries.serving.http2 import Call, Http2Limits, Http2Server, Method, ServerParts
from otel_zernel_libraries.serving.misdirected import Misdirected
from otel_zernel_libraries.serving.requests.decompression import decompress
from otel_zernel_libraries.serving.requests.failures import (
    RequestFailure,
    check_credentials,
    unexpected,
    unserved,
    unsupported,
)
from otel_zernel_receivers.otlp.config import GrpcConfig
from otel_zernel_receivers.otlp.intake import OtlpIntake, in_thread_if_large, unused

TRANSPORT: Final = "grpc"
COMPRESSIONS: Final = ("gzip", "deflate", "zstd", "snappy")


class ExportMethod:
    """Answers the calls of one signal."""

    streams = False

    def __init__(
        self, signal: Signal, intake: OtlpIntake, authenticator: ServerAuthenticator | None, max_message: int
    ) -> None:
        self._signal: Signal = signal
        self._intake = intake
        self._authenticator = authenticator
        self._max_message = max_message

    def begin(self, call: Call) -> None:
        if self._authenticator:
            call.task = asyncio.create_task(self._authenticate(call, self._authenticator), name="otlp authentication")
        elif self._signal not in self._intake.signals:
            raise unserved(unused(self._signal))

    def received(self, call: Call, message: bytes) -> None:
        is_plain = not (call.task or call.encoding) and self._signal in self._intake.signals
        batch = self._intake.decode_at_once(self._signal, message) if is_plain else None
        if batch is None:
            call.task = asyncio.create_task(self._answer(call, message, call.task), name="otlp request")
        elif self._intake.accept_at_once(batch, TRANSPORT):  # a task would take half of the time of a small request
            call.succeed(b"")
        else:
            accept = partial(self._intake.accept, batch, TRANSPORT)
            call.task = asyncio.create_task(self._finish(call, accept), name="otlp request")

    def ended(self, call: Call) -> None:
        """`received` has begun the answer."""

    def failed(self, failure: RequestFailure) -> None:
        self._intake.count(failure, TRANSPORT)

    async def _authenticate(self, call: Call, authenticator: ServerAuthenticator) -> None:
        try:
            await check_credentials(authenticator, call.headers)
        except RequestFailure as failure:
            call.fail(failure)

    async def _answer(self, call: Call, message: bytes, authentication: "asyncio.Task[None] | None") -> None:
        if authentication:
            await authentication
        if not call.closed:
            await self._finish(call, partial(self._take, call, message))

    async def _finish(self, call: Call, work: Callable[[], Awaitable[None]]) -> None:
        """Answers the call when the work is done."""
        try:
            await work()
            call.succeed(b"")
        except RequestFailure as failure:
            call.fail(failure)
        except Exception:
            call.fail(unexpected())
            raise

    async def _take(self, call: Call, message: bytes) -> None:
        if self._signal not in self._intake.signals:
            raise unserved(unused(self._signal))
        if call.encoding and call.encoding != "identity":
            message = await self._decompressed(call, message)
        await self._intake.accept(await self._intake.decode(self._signal, message), TRANSPORT)

    async def _decompressed(self, call: Call, message: bytes) -> bytes:
        if call.encoding not in COMPRESSIONS:
            known = ", ".join(COMPRESSIONS)
            raise unsupported(f"grpc-encoding {call.encoding:.100} is not supported; use {known}")
        size, limit = len(message) * 4, self._max_message
        message = await in_thread_if_large(size, decompress, call.encoding, message, limit, "max_recv_msg_size_mib")
        call.hold.add(len(message))
        return message


_PACKAGE: Final = "opentelemetry.proto.collector"
SERVICES: Final[Mapping[Signal, str]] = {
    "metrics": f"{_PACKAGE}.metrics.v1.MetricsService",
    "traces": f"{_PACKAGE}.trace.v1.TraceService",
    "logs": f"{_PACKAGE}.logs.v1.LogsService",
    "profiles": f"{_PACKAGE}.profiles.v1development.ProfilesService",
}
METHOD: Final = "Export"
FILES: Final = tuple(
    module.DESCRIPTOR for module in (metrics_service_pb2, trace_service_pb2, logs_service_pb2, profiles_service_pb2)
)
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
