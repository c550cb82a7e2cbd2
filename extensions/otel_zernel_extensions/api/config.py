"""The configuration of the api extension."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Address, Duration, ListenAddress, Section
from otel_zernel_libraries.serving.access import HttpAuthConfig
from otel_zernel_libraries.serving.cors import CorsConfig
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig


def _host(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.*-]+", name):
        raise ValueError(f"{name!r} is not a host name; write it without scheme and port: gateway.example.com")
    return name


class RateLimitConfig(Section):
    """How many requests each client address may send. Others get 429."""

    requests_per_second: Annotated[float, Field(gt=0)] = 200.0
    """The lasting rate of one address. The addresses of an IPv6 network (/64) count as one."""
    burst: Annotated[int, Field(ge=1)] = 2000
    """Requests that an address may send at once after a rest."""


class ApiConfig(ComponentConfig):
    """The address of the API, and the clients that may use it."""

    endpoint: ListenAddress = Address("localhost", 9095)
    """Host and port to listen on."""
    tls: ServerTlsConfig | None = None
    """TLS of the server. null serves plain HTTP."""
    auth: HttpAuthConfig | None = None
    """The extension that checks requests. null lets every client in."""
    allow_local_users: bool = False
    """Whether every user of this machine may use the routes that start programs. Without `auth`, only the collector's
    user and root may."""
    allowed_hosts: tuple[Annotated[str, AfterValidator(_host)], ...] = ()
    """Further names of the server in the URLs of clients, with `*` for any characters. IP addresses, localhost, the
    name of this machine and the host of `endpoint` are always valid. Not checked if `auth` is set."""
    cors: CorsConfig | None = None
    """Web pages of other origins that may use the API."""
    rate_limit: RateLimitConfig | None = RateLimitConfig.model_construct()
    """The most requests of each client address. null for no limit."""
    max_connections: Annotated[int, Field(ge=1)] = 1000
    """Open connections. Each stream and each WebSocket is one."""
    unhealthy_after: Duration = 0.0
    """Seconds after which an exporter that delivers nothing makes /healthz answer 503; 0 for never."""
