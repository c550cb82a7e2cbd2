"""Clients that a server cannot understand: another protocol, TLS on one side only, a path that it does not have.

The error that the client gets is often obscure, and it is in another log. So the server logs the address of the client,
the likely mistake and the setting to change, once a minute for each kind of mistake.
"""

import logging
import re
import ssl
from typing import Any, Final, Literal

from otel_zernel.clock import Clock, SystemClock
from otel_zernel.repeated import RepeatedByKey, more
from otel_zernel.text import printable
from otel_zernel_libraries.serving.api.routes import App

Speaks = Literal["http", "grpc"]

_logger = logging.getLogger("otel_zernel_libraries.serving")
_REQUEST: Final = re.compile(rb"[A-Z]{3,10} [\x21-\x7e]")
_MISTAKES: Final[dict[Speaks, dict[str, str]]] = {
    "http": {
        "tls": "speaks TLS to this port without TLS: give the server a certificate (tls), or let the client use http://",
        "http2": "speaks HTTP/2 or gRPC to this port of HTTP/1.1: send gRPC to the gRPC port, usually 4317",
    },
    "grpc": {
        "tls": "speaks TLS to this port without TLS: give the server a certificate (tls), or let the client use http://",
        "http1": "sends HTTP/1.1 to this gRPC port: send OTLP over HTTP to the HTTP port, usually 4318",
        "alpn": "speaks HTTPS without HTTP/2 to this gRPC port: send OTLP over HTTP to the HTTP port, usually 4318",
    },
}
_NO_TLS: Final = "speaks plaintext to this port with TLS: let the client use https://, or tls::insecure: false"
_BAD: Final = "does not accept the certificate of this server: check its names, its dates and its authority"
_HANDSHAKES: Final = {
    "HTTP_REQUEST": _NO_TLS,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "UNKNOWN_CA": "does not trust the certificate of this server: let the client set tls::ca_file to its authority",
    "BAD_CERTIFICATE": _BAD,
    "CERTIFICATE_UNKNOWN": _BAD,
    "CERTIFICATE_EXPIRED": "says that the certificate of this server has expired: renew it",
    "PEER_DID_NOT_RETURN": "has no client certificate, which client_ca_file requires",
    "CERTIFICATE_VERIFY_FAILED": "has a client certificate that client_ca_file does not cover, or that has expired",
    "UNSUPPORTED_PROTOCOL": "offers no TLS version that this server accepts: see tls::min_version",
    "NO_SHARED_CIPHER": "offers no cipher that this server accepts: see tls::cipher_suites",
}
"""By a part of OpenSSL's reason."""
_PATHS: Final = (
    (re.compile(r"/v1/(metrics|traces|logs)$"), "OTLP belongs to the receiver otlp, usually port 4318"),
    (re.compile(r"/opentelemetry\.proto\."), "OTLP over gRPC belongs to the receiver otlp, usually port 4317"),
    (re.compile(r"/metrics$"), "Prometheus metrics are at the exporter prometheus, the collector's own on port 8888"),
    (re.compile(r"/api/v1/(write|push)|/loki/"), "Prometheus remote write and Loki pushes are not accepted here"),
)


def protocol_of(first: bytes) -> str | None:
    """The protocol of a client by its first bytes: `tls`, `http1`, `http2`. None if it is another one."""
    if first[:2] == b"\x16\x03":
        return "tls"
    if first.startswith(b"PRI * HTTP/2"):
        return "http2"
    return "http1" if _REQUEST.match(first) else None


class Misdirected:
    """Logs such clients of one server."""

    def __init__(
        self, setting: str, speaks: Speaks = "http", clock: Clock | None = None, *, is_browsed: bool = False
    ) -> None:
        """`setting` is the configuration key of the server's address.

        `is_browsed` says that unknown paths are ordinary: only those of other protocols are logged.
        """
        self._setting = setting
        self._speaks = speaks
        self._is_browsed = is_browsed
        self._repeated = RepeatedByKey((clock or SystemClock()).monotonic)

    def spoke(self, first: bytes, peer: object) -> None:
        """A client sent something else than the server's protocol. `first` are its first bytes."""
        self.mistook(protocol_of(first) or "", peer)

    def mistook(self, protocol: str, peer: object) -> None:
        """A client speaks `tls`, `http1`, `http2` or `alpn` (TLS without HTTP/2), and the server does not."""
        if mistake := _MISTAKES[self._speaks].get(protocol):
            self._log(peer, mistake)

    def failed_handshake(self, error: Exception, peer: object) -> None:
        """A TLS handshake failed. Clients that only open and close a connection are not logged."""
        reason = str(error.reason or error).upper().replace(" ", "_") if isinstance(error, ssl.SSLError) else ""
        if mistake := next((text for part, text in _HANDSHAKES.items() if part in reason), None):
            self._log(peer, mistake)

    def asked(self, method: str, path: str, status: int, peer: object) -> None:
        """A request for something that the server does not have: status 404, 405 or 415."""
        hint = next((f"; {text}" for pattern, text in _PATHS if pattern.search(path)), "")
        if self._is_browsed and not hint:
            return
        if due := self._repeated.add((method, hint, status)):
            request = f"{method:.20} {printable(path)}"
            _logger.warning(
                "%s: %s asks for %s, which is answered with %d%s%s",
                self._setting,
                _shown(peer),
                request,
                status,
                hint,
                more(due),
            )

    def _log(self, peer: object, mistake: str) -> None:
        if due := self._repeated.add(mistake):
            _logger.warning("%s: %s %s%s", self._setting, _shown(peer), mistake, more(due))


def _shown(peer: object) -> str:
    """`10.0.0.5`; a port would be another one each time."""
    return str(peer[0]) if isinstance(peer, tuple | list) and peer else "a client"


_REPORTED: Final = frozenset({404, 405, 415})


def watched(app: App, misdirected: Misdirected) -> App:
    """The ASGI application. Requests that it does not have an answer for are reported."""

    async def watching(scope: Any, receive: Any, send: Any) -> None:
        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] in _REPORTED:
                misdirected.asked(scope["method"], scope["path"], message["status"], scope.get("client"))
            await send(message)

        await app(scope, receive, sending)

    return watching
