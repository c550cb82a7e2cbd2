"""The otlp receiver."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from otel_zernel.authentication import server_authenticator
from otel_zernel.batch import ALL_SIGNALS
from otel_zernel.component import Context, Emit, Receiver
from otel_zernel.errors import CannotStart
from otel_zernel.types import Address
from otel_zernel_libraries.serving.access import warn_if_open
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.serving import listening, serve
from otel_zernel_libraries.serving.tls import served_tls
from otel_zernel_receivers.otlp.config import GrpcConfig, HttpConfig, OtlpReceiverConfig, ProtocolConfig
from otel_zernel_receivers.otlp.intake import OtlpIntake

_FAMILIES: Final = {"tcp": socket.AF_UNSPEC, "tcp4": socket.AF_INET, "tcp6": socket.AF_INET6}
_EVERY_INTERFACE: Final = {"tcp": "0.0.0.0", "tcp4": "0.0.0.0", "tcp6": "::"}  # noqa: S104  # as the user configures


async def resolve(config: ProtocolConfig, setting: str) -> Address | Path:
    """The place with a numeric host, or `localhost`, which has both families. Raises `CannotStart`.

    IPv4 is preferred if `tcp` leaves the choice.
    """
    if config.transport == "unix":
        return Path(config.endpoint)
    host, port = config.address
    host = host or _EVERY_INTERFACE[config.transport]
    if host == "localhost" and config.transport == "tcp":
        return Address(host, port)  # both families
    loop = asyncio.get_running_loop()
    try:
        getaddrinfo = await loop.getaddrinfo(host, port, family=_FAMILIES[config.transport], type=socket.SOCK_STREAM)
    except OSError as error:
        reason = error.strerror or error
        raise CannotStart(f"{setting}: cannot resolve {config.endpoint}: {reason}; check the host name") from error
    best = min(getaddrinfo, key=lambda address: address[0] != socket.AF_INET)
    return Address(str(best[4][0]), port)


CONNECTIONS = 4096
"""Open connections of each server."""


class OtlpReceiver(Receiver):
    """Receives metrics, spans, log records and profiles over OTLP, by gRPC and HTTP."""

    Config = OtlpReceiverConfig
    stability = "beta"
    signals = ALL_SIGNALS
    serves = True
    config: OtlpReceiverConfig

    def __init__(self, config: OtlpReceiverConfig, context: Context) -> None:
        super().__init__(config, context)
        self.addresses: dict[str, Address | Path] = {}
        """Where each protocol listens, with the actual port, while the receiver runs."""

    async def run(self, emit: Emit) -> None:
        """Serves until cancelled. Running requests then have 0.8 s to finish."""
        intake = OtlpIntake(emit, self.context, self.config.max_in_flight_mib << 20)
        async with AsyncExitStack() as stack:
            if grpc := self.config.protocols.grpc:
                self.addresses["grpc"] = await stack.enter_async_context(self._grpc(grpc, intake))
            if http := self.config.protocols.http:
                self.addresses["http"] = await stack.enter_async_context(self._http(http, intake))
            places = " and ".join(f"{name} on {place}" for name, place in self.addresses.items())
            self.context.logger.info("Listening for OTLP over %s", places)
            self.context.listening.set()
            await asyncio.Event().wait()

    @asynccontextmanager
    async def _grpc(self, config: GrpcConfig, intake: OtlpIntake) -> AsyncIterator[Address | Path]:
        from otel_zernel_receivers.otlp.grpc.server import serve_grpc

        section = f"{self.context.path}::protocols::grpc"
        setting = f"{section}::endpoint"
        place: Any = await resolve(config, setting)
        authenticator = server_authenticator(config.auth, self.context, f"{section}::auth")
        warn_if_open(place, setting, self.context.logger, config.tls, config.auth)
        async with served_tls(config.tls, f"{section}::tls", self.context) as tls:
            with listening(place, setting) as (listeners, actual):
                async with serve_grpc(config, listeners, tls, intake, self.context, authenticator):
                    yield actual

    @asynccontextmanager
    async def _http(self, config: HttpConfig, intake: OtlpIntake) -> AsyncIterator[Address | Path]:
        from otel_zernel_receivers.otlp.http.app import HttpApp

        section = f"{self.context.path}::protocols::http"
        setting = f"{section}::endpoint"
        place: Any = await resolve(config, setting)
        authenticator = server_authenticator(config.auth, self.context, f"{section}::auth")
        app = HttpApp(config, intake, authenticator)
        warn_if_open(place, setting, self.context.logger, config.tls, config.auth)
        async with (
            served_tls(config.tls, f"{section}::tls", self.context) as tls,
            serve(app, place, setting, tls=tls, limits=_limits(config)) as actual,
        ):
            yield actual


def _limits(config: HttpConfig) -> ServerLimits:
    return ServerLimits(
        head_time=config.read_header_timeout,
        body_time=config.read_timeout,
        write_time=config.write_timeout,
        idle_time=config.idle_timeout,
        connections=CONNECTIONS,
    )
