"""The endpoint of a server, as a user writes it."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from otel_zernel.text import shown_url
from otel_zernel_libraries.clients.addresses import is_loopback
from otel_zernel_libraries.clients.tls_config import TlsConfig

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^:/@\s\[\]]+):\d{1,5}")
_URL = re.compile(rf"(?P<scheme>https?)://(?P<place>{_HOST_AND_PORT.pattern})/?")
# https://grpc.github.io/grpc/core/md_doc_naming.html
_TARGET = re.compile(r"(dns|ipv4|ipv6|vsock):\D|ipv4:\d+\.|unix(?:-abstract)?:(?!/*$)")


@dataclass(frozen=True, slots=True)
class GrpcEndpoint:
    """`host:port`, `http://host:port` (plaintext), `https://host:port`, or a gRPC target such as `dns:///host:port`."""

    text: str
    port: int
    """The usual port of the service, for messages."""

    def check(self) -> str:
        """The text. Raises `ValueError` if it is no endpoint."""
        if not self.text:
            raise ValueError(f"required: set the server to send to, for example localhost:{self.port}")
        if not any((_URL.fullmatch(self.text), _HOST_AND_PORT.fullmatch(self.text), _TARGET.match(self.text))):
            port = self.port
            raise ValueError(
                f"{shown_url(self.text)!r} is not a gRPC endpoint; write host:{port}, http://host:{port} or"
                f" https://host:{port}"
            )
        return self.text

    def plaintext(self, tls: TlsConfig) -> bool:
        """Whether to use no TLS: the scheme decides; without a scheme, `tls::insecure`."""
        url = _URL.fullmatch(self.text)
        return url["scheme"] == "http" if url else tls.insecure

    def is_unprotected(self, tls: TlsConfig) -> bool:
        """Whether others on the network can read the requests."""
        host = self.host_and_port
        return self.plaintext(tls) and not self.target.startswith("unix") and not (host and is_loopback(host[0]))

    @property
    def target(self) -> str:
        """The endpoint as a gRPC target."""
        url = _URL.fullmatch(self.text)
        return url["place"] if url else self.text

    @property
    def host_and_port(self) -> tuple[str, int] | None:
        """The host that the system resolves; None for any other gRPC target."""
        place = self.target.removeprefix("dns:///").removeprefix("dns:")
        if not _HOST_AND_PORT.fullmatch(place):
            return None
        host, _, port = place.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def listed_addresses(self) -> list[str]:
        """The targets of `ipv4:` and `ipv6:` with several addresses; empty for any other target."""
        scheme, _, rest = self.target.partition(":")
        return [f"{scheme}:{part}" for part in rest.split(",")] if scheme in {"ipv4", "ipv6"} else []


def check_tls_of_grpc(tls: TlsConfig, *, instead: str = "") -> TlsConfig:
    """The TLS of a gRPC client. Raises `ValueError` for settings that gRPC for Python does not have.

    `instead` ends the messages: `, or use otlp_http`.
    """
    if tls.insecure_skip_verify and not tls.insecure:
        raise ValueError(
            "insecure_skip_verify: gRPC for Python always verifies; set ca_file to the server's certificate "
            f"(and server_name_override to its name){instead}"
        )
    if not tls.insecure and (tls.min_version != "1.2" or tls.max_version == "1.2"):
        raise ValueError(
            f"min_version and max_version: gRPC for Python always accepts TLS 1.2 and 1.3; remove the keys{instead}"
        )
    return tls


def check_url(endpoint: str, instead: str) -> str:
    """The URL of an HTTP server itself. Raises `ValueError` that says what to write `instead`."""
    url = urlsplit(endpoint)
    if url.scheme not in {"http", "https"} or not url.hostname or url.port == 0:  # port: ValueError if too large
        raise ValueError(f"{shown_url(endpoint)!r} is not a URL; write {instead}")
    if url.username or url.password:
        raise ValueError("the URL contains a password, which would be printed; use headers::authorization instead")
    return endpoint
