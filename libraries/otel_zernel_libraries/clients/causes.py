"""The likely cause of a failed connection, in one sentence, with the setting to change.

The words of OpenSSL, gRPC and h11 describe the symptom: `illegal request line`, `WRONG_VERSION_NUMBER`,
`Expected SETTINGS frame`. Patterns are searched in these words, in order; the first that is found decides.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Transport = Literal["grpc", "http", "heartbeat", "remote_write"]
"""`grpc` and `http` are those of OTLP. `heartbeat` is the gRPC service of a master of workers. `remote_write` is the
HTTP of Prometheus."""


@dataclass(frozen=True, slots=True)
class _Cause:
    pattern: re.Pattern[str]
    sentence: str


def _causes(table: Mapping[str, str]) -> tuple[_Cause, ...]:
    return tuple(_Cause(re.compile(pattern, re.IGNORECASE), sentence) for pattern, sentence in table.items())


_TLS: Final = {
    r"certificate has expired|certificate is not yet valid": (
        "the server's certificate has expired or is not valid yet; renew it, or correct the clock of this machine"
    ),
    r"hostname mismatch|ip address mismatch|hostname verification": (
        "the server's certificate is for another name; write a name of the certificate in the endpoint, or in"
        " tls::server_name_override"
    ),
    r"self.signed certificate|local issuer certificate|issuer certificate|verify the first certificate|unknown ca\b": (
        "the server's certificate is signed by an authority that is not trusted; set tls::ca_file to the certificate of"
        " that authority"
    ),
    r"alert certificate required|alert handshake failure|alert bad certificate|CERTIFICATE_REQUIRED": (
        "the server requires a client certificate; set tls::cert_file and tls::key_file"
    ),
    r"alert unknown ca|ALERT_UNKNOWN_CA": (
        "the server does not trust the client certificate; set tls::cert_file to one of the server's authority"
    ),
    r"alert protocol version|UNSUPPORTED_PROTOCOL|no protocols available": (
        "the server and the exporter have no TLS version in common; set tls::min_version, or update the server"
    ),
}
_OF_HTTP: Final = {
    **_TLS,
    r"WRONG_VERSION_NUMBER|http request|UNEXPECTED_EOF|record layer failure": (
        "the server does not speak TLS on this port; write http:// in the endpoint, or use its port with TLS"
    ),
}
_OF_GRPC: Final = {
    **_TLS,
    r"WRONG_VERSION_NUMBER|HTTP_REQUEST": (
        "the server does not speak TLS on this port; set tls::insecure: true, or write http:// before the host"
    ),
    r"proxy returned": "the proxy does not let gRPC through",
}
_BOTH: Final = {
    r"name or service not known|no address associated|name resolution|nodename nor servname|DNS resolution failed"
    r"|address lookup failed|errors resolving": (
        "the name of the host is unknown; correct the endpoint, or the DNS of this machine"
    ),
    r"no route to host|network is unreachable": "there is no route to the host; check the network and its firewalls",
    r"connection timed out|connect timeout|deadline exceeded while connecting": (
        "the host does not answer; check the endpoint, the network and its firewalls"
    ),
    r"connection refused": "nothing listens on this port; start the server, or correct the endpoint",
}
_CAUSES: Final[Mapping[Transport, tuple[_Cause, ...]]] = {
    "http": _causes(
        {
            **_OF_HTTP,
            r"illegal (request|status) line|illegal header|HTTP/2|malformed": (
                "the server does not answer in HTTP/1.1, and may be a gRPC server; use its HTTP port, usually 4318, or"
                " the exporter otlp_grpc"
            ),
            **_BOTH,
        }
    ),
    "remote_write": _causes(
        {
            **_OF_HTTP,
            r"illegal (request|status) line|illegal header|HTTP/2|malformed": (
                "the server does not answer in HTTP/1.1; correct the endpoint"
            ),
            **_BOTH,
        }
    ),
    "grpc": _causes(
        {
            **_OF_GRPC,
            r"http1\.x server|Expected SETTINGS frame|Failed parsing HTTP/2": (
                "the server speaks HTTP/1.1, not gRPC; use its gRPC port, usually 4317, or the exporter otlp_http"
            ),
            r"missing selected ALPN": (
                "the server speaks TLS, but not gRPC; use its gRPC port, usually 4317, or the exporter otlp_http"
            ),
            r"http2 header with status|invalid content-type": (
                "a web server or a proxy answers, not a gRPC server; use the gRPC port, usually 4317, or the exporter"
                " otlp_http"
            ),
            **_BOTH,
        }
    ),
    "heartbeat": _causes(
        {
            **_OF_GRPC,
            r"http1\.x server|Expected SETTINGS frame|Failed parsing HTTP/2|missing selected ALPN|http2 header with"
            r" status|invalid content-type": (
                "a web server or a proxy answers, not the master of the workers; use its gRPC port, usually 50051"
            ),
            **_BOTH,
        }
    ),
}
_CLOSED: Final = re.compile(
    r"connection reset|broken pipe|socket closed|server disconnected|EOF occurred", re.IGNORECASE
)
_NO_HTTP: Final = (
    "the server closes the connection without an answer, and may be a gRPC server; use its HTTP port, usually 4318, or"
    " the exporter otlp_grpc"
)
_SILENT: Final = "closes the connection without an answer; if it expects TLS,"
_EXPECTS_TLS: Final[Mapping[Transport, str]] = {
    **dict.fromkeys(("http", "remote_write"), f"the server {_SILENT} write https:// in the endpoint"),
    "grpc": f"the server {_SILENT} remove tls::insecure, or write https:// before the host",
    "heartbeat": f"the master {_SILENT} remove tls::insecure, or write https:// before the host",
}


def cause_of(words: str, transport: Transport, *, plaintext: bool) -> str | None:
    """The likely cause of a failed connection; None if the words of the library are clear, or unknown."""
    for cause in _CAUSES[transport]:
        if cause.pattern.search(words):
            return cause.sentence
    if not _CLOSED.search(words):
        return None
    if plaintext:
        return _EXPECTS_TLS[transport]
    return _NO_HTTP if transport == "http" else None


def explained(words: str, transport: Transport, *, plaintext: bool) -> str:
    """The likely cause, with the words of the library in parentheses; the words alone if the cause is unknown."""
    cause = cause_of(words, transport, plaintext=plaintext)
    return f"{cause} ({words})" if cause else words


def is_refusal(words: str) -> bool:
    """Whether nothing listens on the address: another address of the host may say more."""
    return bool(re.search(r"connection refused|cannot assign requested address|unreachable", words, re.IGNORECASE))


@dataclass(slots=True)
class Failures:
    """The failed attempts of one request, one for each address of the host."""

    words: dict[str, list[str]] = field(default_factory=dict)
    """The addresses by the words of the failure."""
    error: Exception | None = None
    """The last failure."""

    def add(self, address: str | None, words: str, error: Exception) -> None:
        """`address` is None if the host of the endpoint is an address."""
        self.words.setdefault(words, []).append(address or "")
        self.error = error

    def explained(self, transport: Transport, *, plaintext: bool, proxied: bool) -> str:
        """The likely cause at the address that says most. The others follow with their own words.

        A server on one address matters more than the addresses on which nothing listens: `localhost` has two.
        """
        if not self.words:
            return "the host has no address"
        if proxied and all(map(is_refusal, self.words)):
            return f"the proxy cannot be reached ({' and '.join(self.words)})"
        first, *others = sorted(self.words, key=is_refusal)
        text = explained(first, transport, plaintext=plaintext)
        telling = [words for words in others if not is_refusal(words) or is_refusal(first)]
        more = "".join(f"; {' and '.join(self.words[words])}: {words}" for words in telling)
        return f"{' and '.join(self.words[first])}: {text}{more}" if len(self.words) > 1 else text


_NOISE: Final = (
    re.compile(r"failed to connect to all addresses; last error: "),
    re.compile(r"\b(UNKNOWN|UNAVAILABLE|INTERNAL): (?=ipv[46]:)"),
    re.compile(r"(?<!\S)ipv[46]:\S+: "),
    re.compile(r"Failed to connect to remote host: "),
    re.compile(r"Tls handshake failed \(TSI_PROTOCOL_FAILURE\): SSL_ERROR_SSL: error:\w+:SSL routines:\w+:"),
    re.compile(r": Invalid certificate verification context: OK|: OK(?=$)"),
    re.compile(r"Custom verification check failed with error: UNAUTHENTICATED: "),
)


def without_noise(details: str) -> str:
    """The details of a gRPC status, without the parts that are the same for every failed connection."""
    for noise in _NOISE:
        details = noise.sub("", details)
    return details
