"""The gRPC server for workers."""

import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from otel_zernel.authentication import server_authenticator
from otel_zernel.component import Context
from otel_zernel.types import Address
from otel_zernel_libraries.cluster.messages import FILE, SERVICE
from otel_zernel_libraries.serving.access import warn_if_open
from otel_zernel_libraries.serving.grpc import HealthService, with_standard_services
from otel_zernel_libraries.serving.http2 import Http2Limits, Http2Server, ServerParts
from otel_zernel_libraries.serving.misdirected import Misdirected
from otel_zernel_libraries.serving.requests.room import Room
from otel_zernel_libraries.serving.serving import listening
from otel_zernel_libraries.serving.tls import served_tls
from otel_zernel_receivers.heartbeat.config import HeartbeatReceiverConfig
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.grpc.methods import HeartbeatCounts, methods_of

_SPARE: Final = 256
"""Connections beyond `max_workers`, for workers that connect again before their old connection ends."""
_FILES: Final = 0.75
"""The share of the process's open files that workers may take."""
_LEAST_PING: Final = 5.0
"""Seconds between two pings of a worker. Clients of gRPC often ping every 10 s."""
_BACKLOG: Final = 4096
"""Connections that wait to be accepted: all workers come at once after a restart."""


@asynccontextmanager
async def serve_workers(
    config: HeartbeatReceiverConfig, context: Context, fleet: Fleet, counts: HeartbeatCounts
) -> AsyncIterator[Address]:
    """Serves while it is entered. Yields the actual address. Raises `CannotStart`."""
    setting = f"{context.path}::endpoint"
    authenticator = server_authenticator(config.auth, context, f"{context.path}::auth")
    clock = context.clock
    health = HealthService([SERVICE])
    methods = methods_of(fleet, authenticator, config, counts)
    async with AsyncExitStack() as stack:
        tls = await stack.enter_async_context(served_tls(config.tls, f"{context.path}::tls", context))
        warn_if_open(config.endpoint, setting, context.logger, config.tls, config.auth)
        _allow_files(config, context)
        listeners, actual = stack.enter_context(listening(config.endpoint, setting))
        for listener in listeners:
            listener.listen(_BACKLOG)
        route = with_standard_services(methods, health, [SERVICE], [FILE])
        room = Room(config.max_in_flight_mib << 20, clock.monotonic)
        parts = ServerParts(route, room, _limits(config), clock.monotonic)
        misdirected = Misdirected(setting, "grpc", clock)
        server = Http2Server(parts, context.logger, tls, misdirected)
        await stack.enter_async_context(server.serving(listeners, health.stop))
        yield actual


def _limits(config: HeartbeatReceiverConfig) -> Http2Limits:
    return Http2Limits(
        message=config.max_recv_msg_size_mib << 20,
        streams=100,
        connections=config.max_workers + _SPARE,
        files=_FILES,
        ping_after=config.inactive_after,
        least_ping_interval=_LEAST_PING,
        pings_without_calls=True,
    )


def _allow_files(config: HeartbeatReceiverConfig, context: Context) -> None:
    """Raises the process's soft limit of open files as far as needed, as programs in Go do at their start."""
    needed = int((config.max_workers + _SPARE) / _FILES)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
        if allowed < needed:
            context.logger.warning(
                "%s::max_workers: %d workers need %d open files, and this process may have %d; set LimitNOFILE=%d",
                context.path,
                config.max_workers,
                needed,
                allowed,
                needed,
            )
