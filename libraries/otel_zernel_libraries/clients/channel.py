"""gRPC channels of exporters: options, TLS, and one channel to one target."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from otel_zernel import __version__
from otel_zernel_libraries.clients.tls import Pem
from otel_zernel_libraries.clients.tls_config import TlsConfig

if TYPE_CHECKING:  # importing gRPC takes 27 MB, and validation does not need it
    from grpc import ChannelCredentials, Compression
    from grpc.aio import Channel

Options = Sequence[tuple[str, str | int]]

# https://grpc.github.io/grpc/core/group__grpc__arg__keys.html
_OPTIONS: Options = (
    ("grpc.primary_user_agent", f"otel-zernel/{__version__}"),
    # The exporter decides how long to wait: the channel must not wait longer than one attempt.
    ("grpc.max_reconnect_backoff_ms", 5000),
    # Also the time-out of connecting, by default 20 s. Another address is tried after it.
    ("grpc.min_reconnect_backoff_ms", 3000),
    # The channel's own repetition has no pause and no limit: a server that answers each connection by GOAWAY costs
    # a full core, and 400 MB of memory a second.
    ("grpc.enable_retries", 0),
    # A channel that replaces another one must not use its connection.
    ("grpc.use_local_subchannel_pool", 1),
)


def security_of(pem: Pem) -> "ChannelCredentials":
    """The TLS of channels."""
    import grpc

    return grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate)


def open_channel(
    target: str,
    host: tuple[str, int] | None,
    security: "ChannelCredentials | None",
    tls: TlsConfig,
    options: Options = (),
    compression: "Compression | None" = None,
) -> "Channel":
    """A channel, which connects with its first request.

    `host` is the name and the port of an address in `target`, for certificates and virtual hosts. None if the target
    has a name itself.
    """
    import grpc

    every = [*_OPTIONS, *options]
    override = tls.server_name_override
    if host:
        every.append(("grpc.default_authority", override or f"{host[0]}:{host[1]}"))
    if security and (name := override or (host and host[0])):
        every.append(("grpc.ssl_target_name_override", name))
    if security is None:
        return grpc.aio.insecure_channel(target, every, compression)
    return grpc.aio.secure_channel(target, security, every, compression)
