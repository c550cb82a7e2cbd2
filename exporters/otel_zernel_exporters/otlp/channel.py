"""The gRPC channel: its options, its balancing, and the failures that only a new channel repairs."""

import json
import re
from typing import TYPE_CHECKING

from otel_zernel import __version__
from otel_zernel_exporters.otlp.config import OtlpGrpcConfig

if TYPE_CHECKING:  # importing gRPC takes 27 MB, and validation does not need it
    from grpc import ChannelCredentials
    from grpc.aio import AioRpcError, Channel

RENEWAL = 30.0
"""Seconds after which a new channel replaces the old one. gRPC resolves a name only when a connection is lost, so it
would not notice new gateways. The new channel resolves the name, and shares the open connections with the old one."""

_FIXED_TARGET = re.compile(r"(ipv4|ipv6|unix|unix-abstract|vsock):")
_TOO_LONG = "CLIENT: Received message larger than max"


def is_renewed(config: OtlpGrpcConfig) -> bool:
    """Whether the endpoint is a name whose addresses may change."""
    return config.balancer_name == "round_robin" and not _FIXED_TARGET.match(config.target)


def open_channel(config: OtlpGrpcConfig, security: "ChannelCredentials | None") -> "Channel":
    """A channel to the endpoint, in plaintext without `security`. It connects with its first request."""
    import grpc

    compression = {
        "gzip": grpc.Compression.Gzip,
        "deflate": grpc.Compression.Deflate,
        "none": grpc.Compression.NoCompression,
    }[config.compression]
    if security is None:
        return grpc.aio.insecure_channel(config.target, _options(config), compression)
    return grpc.aio.secure_channel(config.target, security, _options(config), compression)


def _options(config: OtlpGrpcConfig) -> list[tuple[str, str | int]]:
    """https://grpc.github.io/grpc/core/group__grpc__arg__keys.html"""
    options: list[tuple[str, str | int]] = [
        ("grpc.primary_user_agent", f"otel-zernel/{__version__}"),
        ("grpc.service_config", json.dumps({"loadBalancingConfig": [{config.balancer_name: {}}]})),
        # retry_on_failure decides how long to wait: the channel must not wait longer than one attempt.
        ("grpc.max_reconnect_backoff_ms", 5000),
        # Names are resolved again at once when gateways move. The default is 30 s.
        ("grpc.dns_min_time_between_resolutions_ms", 5000),
        # retry_on_failure repeats requests. The channel's own repetition has no pause and no limit: a server that sends
        # GOAWAY on each connection costs a full core, and 400 MB of memory a second.
        ("grpc.enable_retries", 0),
    ]
    if config.tls.server_name_override:
        options.append(("grpc.ssl_target_name_override", config.tls.server_name_override))
    if keepalive := config.keepalive:
        options += [
            ("grpc.keepalive_time_ms", round(keepalive.time * 1000)),
            ("grpc.keepalive_timeout_ms", round(keepalive.timeout * 1000)),
            ("grpc.keepalive_permit_without_calls", int(keepalive.permit_without_stream)),
            ("grpc.http2.max_pings_without_data", 0),
        ]
    return options


def is_stuck(channel: "Channel", error: "AioRpcError") -> bool:
    """Whether the channel keeps a connection on which the server accepts no more requests.

    That happens if GOAWAY arrives while the channel connects, and the server leaves the connection open.
    """
    import grpc

    ready = channel.get_state() is grpc.ChannelConnectivity.READY
    return ready and error.code() is grpc.StatusCode.UNAVAILABLE and "GOAWAY" in (error.details() or "")


def is_too_long(error: "AioRpcError") -> bool:
    """Whether the server accepted the request with a response over gRPC's limit of 4 MB, which it did not read."""
    return (error.details() or "").startswith(_TOO_LONG)
