"""Access to servers: authentication of HTTP requests, and a warning about servers that are open to everybody."""

import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from otel_zernel.authentication import AuthConfig, ServerAuthenticator, Unauthenticated
from otel_zernel.component import Logger
from otel_zernel.types import Address
from otel_zernel_libraries.serving.api.answers import plain_answer
from otel_zernel_libraries.serving.api.routes import App
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig


class HttpAuthConfig(AuthConfig):
    """The `auth` section of an HTTP server."""

    request_params: list[str] = Field(default_factory=list)
    """Parameters of the URL that the extension sees as headers."""


def protected(app: App, authenticator: ServerAuthenticator | None) -> App:
    """The ASGI application, behind an authenticator. Others get 401 before the body of their request is read."""
    if authenticator is None:
        return app

    async def checked(scope: Any, receive: Any, send: Any) -> None:
        try:
            await authenticator.authenticate(joined_headers(scope["headers"]))
        except Unauthenticated as refused:
            challenge = authenticator.challenge.encode("latin-1", "replace")
            headers = [(b"www-authenticate", challenge)] if challenge else []
            body, is_http = f"{refused}\n".encode(), scope["type"] == "http"
            await plain_answer(send, body, "text/plain; charset=utf-8", 401, headers, http=is_http)
        else:
            await app(scope, receive, send)

    return checked


def joined_headers(headers: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """The headers of an ASGI request by name. Repeated ones are joined by commas (RFC 9110, 5.3)."""
    joined: dict[str, str] = {}
    repeated: dict[str, list[str]] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name in joined:
            repeated.setdefault(name, [joined[name]]).append(value)
        else:
            joined[name] = value
    return joined | {name: ",".join(values) for name, values in repeated.items()} if repeated else joined


def warn_if_open(
    place: Address | Path, setting: str, logger: Logger, tls: ServerTlsConfig | None, auth: AuthConfig | None
) -> None:
    """Logs a warning if a server that accepts data listens for other machines without TLS or authentication."""
    if missing := missing_protection(place, tls, auth):
        logger.warning(
            "%s: %s accepts data from other machines without %s; set tls and auth, or listen on localhost",
            setting,
            place,
            missing,
        )


def missing_protection(place: Address | Path, tls: ServerTlsConfig | None, auth: AuthConfig | None) -> str:
    """`TLS and authentication`, one of the two, or an empty text: what a server lacks that other machines can reach.

    Certificates of clients are authentication.
    """
    if not isinstance(place, Address) or is_local(place.host):
        return ""
    protection = {"TLS": tls, "authentication": auth or (tls and tls.client_ca_file)}
    return " and ".join(name for name, present in protection.items() if not present)


def is_local(host: str) -> bool:
    """Whether only this machine can connect to the host. Names other than localhost count as remote."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
