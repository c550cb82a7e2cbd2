"""The gRPC channels of one exporter: one for each address of the endpoint, used in turn.

gRPC's own `round_robin` has two weaknesses, which channels with one address do not have. It resolves a name only when a
connection is lost, so it does not notice new gateways. And it connects again without a pause to a server that accepts
connections and closes them by GOAWAY: 2,500 times a second.
"""

import asyncio
import json
from collections.abc import Sequence
from os import environ
from typing import TYPE_CHECKING

from otel_zernel.clock import Clock
from otel_zernel_exporters.otlp.config import OtlpGrpcConfig
from otel_zernel_libraries.clients.addresses import Addresses, Resolve, is_address
from otel_zernel_libraries.clients.channel import open_channel

if TYPE_CHECKING:  # importing gRPC takes 27 MB, and validation does not need it
    from grpc import ChannelCredentials
    from grpc.aio import AioRpcError, Channel

_LONGEST_GRACE = 3600.0
"""Seconds in which requests on a replaced channel must finish, if `timeout` is 0."""

# https://github.com/grpc/grpc/blob/master/doc/environment_variables.md
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")

_TOO_LONG = "CLIENT: Received message larger than max"


class Channels:
    """Opens a channel when its address is first used. A channel connects with its first request."""

    def __init__(self, config: OtlpGrpcConfig, clock: Clock, resolve: Resolve) -> None:
        self._config = config
        self._host = None if any(map(environ.get, _PROXIES)) else config.host_and_port
        if self._host and is_address(self._host[0]):
            self._host = None
        self._addresses: Addresses | None = None
        if config.balancer_name == "round_robin" and self._host:
            self._addresses = Addresses(*self._host, clock, resolve)
        elif config.balancer_name == "round_robin" and config.listed_addresses:
            self._addresses = Addresses("", 0, clock, self._listed)
        self._security: ChannelCredentials | None = None
        self._open: dict[str, Channel] = {}
        """By target."""
        self._closing: set[asyncio.Task[None]] = set()

    def secure(self, security: "ChannelCredentials | None") -> None:
        """Sets the TLS of new channels, and replaces the open ones. Requests on them finish."""
        self._security = security
        for target in list(self._open):
            self.discard(target, self._open[target])

    async def in_turn(self) -> Sequence[str]:
        """The targets, beginning with the next one in turn. Raises OSError if the host cannot be resolved."""
        if self._addresses is None:
            return (self._config.target,)
        addresses = await self._addresses.in_turn()
        for target in self._open.keys() - set(map(self._target, self._addresses.known)):
            self.discard(target, self._open[target])
        return [self._target(address) for address in addresses]

    def get(self, target: str) -> "Channel":
        """The channel to one of the targets."""
        if target not in self._open:
            self._open[target] = _opened(self._config, target, self._host, self._security)
        return self._open[target]

    def fail(self, target: str) -> None:
        """Notes that no connection to the target was possible."""
        if self._addresses:
            address = next(address for address in self._addresses.known if self._target(address) == target)
            self._addresses.fail(address)

    def discard(self, target: str, channel: "Channel") -> None:
        """Closes a channel after its requests, unless another request has replaced it. A new one takes its place."""
        if self._open.get(target) is channel:
            del self._open[target]
            closing = asyncio.create_task(channel.close(grace=self._config.timeout or _LONGEST_GRACE))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes all channels. Safe to call twice."""
        await asyncio.gather(*self._closing)
        while self._open:
            await self._open.popitem()[1].close(grace=None)

    async def _listed(self, _host: str, _port: int) -> list[str]:
        return list(self._config.listed_addresses)

    def _target(self, address: str) -> str:
        if self._host is None:
            return address
        return f"ipv6:[{address}]:{self._host[1]}" if ":" in address else f"ipv4:{address}:{self._host[1]}"


def _opened(
    config: OtlpGrpcConfig, target: str, host: tuple[str, int] | None, security: "ChannelCredentials | None"
) -> "Channel":
    import grpc

    compression = {
        "gzip": grpc.Compression.Gzip,
        "deflate": grpc.Compression.Deflate,
        "none": grpc.Compression.NoCompression,
    }[config.compression]
    options = _options(config)
    if target.startswith("dns:"):  # with a name server of its own: only gRPC resolves such a name
        options.append(("grpc.service_config", json.dumps({"loadBalancingConfig": [{config.balancer_name: {}}]})))
    return open_channel(target, host, security, config.tls, options, compression)


def _options(config: OtlpGrpcConfig) -> list[tuple[str, str | int]]:
    """https://grpc.github.io/grpc/core/group__grpc__arg__keys.html"""
    keepalive = config.keepalive
    if keepalive is None:
        return []
    return [
        ("grpc.keepalive_time_ms", round(keepalive.time * 1000)),
        ("grpc.keepalive_timeout_ms", round(keepalive.timeout * 1000)),
        ("grpc.keepalive_permit_without_calls", int(keepalive.permit_without_stream)),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def is_unconnected(channel: "Channel", error: "AioRpcError") -> bool:
    """Whether the request failed because there is no connection."""
    import grpc

    states = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.CONNECTING)
    return error.code() is grpc.StatusCode.UNAVAILABLE and channel.get_state() in states


def is_stuck(channel: "Channel", error: "AioRpcError") -> bool:
    """Whether the channel keeps a connection on which the server accepts no more requests.

    That happens if GOAWAY arrives while the channel connects, and the server leaves the connection open.
    """
    import grpc

    ready = channel.get_state() is grpc.ChannelConnectivity.READY
    return ready and error.code() is grpc.StatusCode.UNAVAILABLE and "GOAWAY" in (error.details() or "")


def is_too_long(error: "AioRpcError") -> bool:
    """Whether the server accepted the request with a response over gRPC's limit of 4 MB, which was not read."""
    return _TOO_LONG in (error.details() or "")
