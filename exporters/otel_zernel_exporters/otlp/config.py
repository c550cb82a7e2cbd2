"""The configuration of the two OTLP exporters.

`OTEL_EXPORTER_OTLP_*`, the settings of SDKs, replace keys that are missing in the configuration:
https://opentelemetry.io/docs/specs/otel/protocol/exporter/
"""

from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from otel_zernel.authentication import AuthConfig
from otel_zernel.batch import SIGNALS, Signal
from otel_zernel.component import ComponentConfig
from otel_zernel.delivery_config import HttpRetryConfig, RemoteExporterConfig, RetryConfig
from otel_zernel.types import HEADER_NAME, Duration, PositiveDuration, Secret, SecretHeaders
from otel_zernel_libraries.clients.addresses import is_loopback
from otel_zernel_libraries.clients.endpoint_config import GrpcEndpoint, check_tls_of_grpc, check_url
from otel_zernel_libraries.clients.tls_config import TlsConfig
from otel_zernel_libraries.histograms.temporality import MovingBounds, SeriesMemoryConfig, Temporality

PREFIX = "OTEL_EXPORTER_OTLP_"
"""A token of RFC 9110."""

_KEYS = {"ENDPOINT": "endpoint", "COMPRESSION": "compression", "HEADERS": "headers", "TIMEOUT": "timeout"}
_TLS_KEYS = {
    "CERTIFICATE": "ca_file",
    "CLIENT_CERTIFICATE": "cert_file",
    "CLIENT_KEY": "key_file",
    "INSECURE": "insecure",
}
SIGNAL_ENDPOINTS = {
    "METRICS_ENDPOINT": "metrics_endpoint",
    "TRACES_ENDPOINT": "traces_endpoint",
    "LOGS_ENDPOINT": "logs_endpoint",
    "PROFILES_ENDPOINT": "profiles_endpoint",
}
URL_PATHS: Final[Mapping[Signal, str]] = {
    "metrics": "/v1/metrics",
    "traces": "/v1/traces",
    "logs": "/v1/logs",
    "profiles": "/v1development/profiles",
}
"""The path of each signal below the endpoint."""


def fill_in(fields: Any, info: ValidationInfo, more: Mapping[str, str] | None = None) -> Any:
    """The configuration, with missing keys from the `environ` of the validation context, if it has one.

    `more` maps further variables, without the prefix, to keys.
    """
    environ = (info.context or {}).get("environ", {})
    if not isinstance(fields, Mapping) or not environ:
        return fields
    settings = _found(environ, _KEYS | dict(more or {}))
    tls, own_tls = _found(environ, _TLS_KEYS), fields.get("tls") or {}
    if tls and isinstance(own_tls, Mapping):
        return {**settings, **fields, "tls": {**tls, **own_tls}}
    return {**settings, **fields}


def _found(environ: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, object]:
    set_ones = {key: name for name, key in keys.items() if environ.get(PREFIX + name)}
    return {key: _value(name, environ[PREFIX + name]) for key, name in set_ones.items()}


def _value(name: str, text: str) -> object:
    if name == "HEADERS":
        return dict(_header(place, part) for place, part in enumerate(text.split(","), 1) if part.strip())
    if name == "TIMEOUT":
        return _milliseconds(text)
    return text


def _header(place: int, text: str) -> tuple[str, str]:
    """The errors name the place only: a part of a secret may stand where the name should be."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{PREFIX}HEADERS: part {place} has no value; write name=value,name=value")
    name = unquote(name).strip()
    if not HEADER_NAME.fullmatch(name):
        raise ValueError(f"{PREFIX}HEADERS: part {place} has no valid header name; write name=value,name=value")
    return name, unquote(value).strip()


def _milliseconds(text: str) -> str:
    if not text.strip().isdecimal():
        raise ValueError(f"{PREFIX}TIMEOUT: {text!r} is not a number of milliseconds")
    return f"{text.strip()}ms"


class OtlpConfig(RemoteExporterConfig):
    """The options that both transports share."""

    headers: SecretHeaders = Field(default_factory=dict)
    """Headers of every request. Values are never printed."""
    auth: AuthConfig | None = None
    """The extension that adds credentials to each request."""
    tls: TlsConfig = TlsConfig.model_construct()
    temporality: Temporality = "cumulative"
    """What the server gets: `cumulative`, `delta`, or `as_is`. Prometheus and Mimir refuse delta."""
    moving_bounds: MovingBounds = "exponential"
    """The form of histograms whose bounds differ from point to point, such as those of `ebpf` and `phases`:
    `exponential` histograms, `fixed` bounds by unit, or `as_is` for another otel-zernel, which adds them up exactly."""
    conversion: SeriesMemoryConfig = SeriesMemoryConfig.model_construct()
    """The limits of the memory for these conversions. Sums that have the temporality already take none."""


class KeepaliveConfig(ComponentConfig):
    """Pings that find a dead connection before a request does."""

    time: PositiveDuration = 10.0
    """Seconds of silence before a ping. Servers disconnect clients that ping more often than allowed: by default 5m."""
    timeout: PositiveDuration = 20.0
    """Seconds to wait for the answer to a ping."""
    permit_without_stream: bool = False
    """Ping also while no request is in flight."""


GrpcCode = Literal[
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAUTHENTICATED",
]
"""The codes of gRPC that OTLP does not always retry."""


class GrpcRetryConfig(RetryConfig):
    """When a failed attempt is repeated."""

    permanent_codes: tuple[GrpcCode, ...] = ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
    """The codes that drop a batch at once. Any other failure may be the fault of an endpoint, a credential or a proxy:
    the batch is kept and sent again. RESOURCE_EXHAUSTED with `RetryInfo` is always retried."""


class OtlpGrpcConfig(OtlpConfig):
    """The options of `otlp_grpc`."""

    endpoint: str = Field("", validate_default=True)
    """`host:port`, `http://host:port` (plaintext), `https://host:port`, or a gRPC target such as `dns:///host:port`."""
    compression: Literal["gzip", "deflate", "none"] = "gzip"
    signals: tuple[Signal, ...] = SIGNALS
    """The signals to send. A backend that takes no metrics, such as Tempo, gets `[traces]`."""
    keepalive: KeepaliveConfig | None = None
    retry_on_failure: GrpcRetryConfig = GrpcRetryConfig.model_construct()
    balancer_name: Literal["round_robin", "pick_first"] = "round_robin"
    """How requests are spread over the addresses of the endpoint."""

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, fields: Any, info: ValidationInfo) -> Any:
        return fill_in(fields, info)

    @field_validator("compression", mode="before")
    @classmethod
    def _compression_is_possible(cls, value: object) -> object:
        if value == "zstd":
            raise ValueError("gRPC for Python does not support zstd: use gzip, or otlp_http with zstd")
        return value or "none"

    @field_validator("endpoint")
    @classmethod
    def _endpoint_is_a_target(cls, endpoint: str) -> str:
        return GrpcEndpoint(endpoint, 4317).check()

    @field_validator("headers")
    @classmethod
    def _headers_are_free(cls, headers: dict[str, Secret]) -> dict[str, Secret]:
        for name in headers:
            if name.lower().startswith("grpc-"):
                raise ValueError(f"{name!r}: header names that start with grpc- are reserved for gRPC")
        return headers

    @field_validator("tls")
    @classmethod
    def _tls_is_possible(cls, tls: TlsConfig) -> TlsConfig:
        return check_tls_of_grpc(tls, instead=", or use otlp_http")

    @property
    def plaintext(self) -> bool:
        """Whether to use no TLS: the scheme decides; without a scheme, `tls::insecure`."""
        return GrpcEndpoint(self.endpoint, 4317).plaintext(self.tls)

    @property
    def is_unprotected(self) -> bool:
        """Whether others on the network can read the requests."""
        return GrpcEndpoint(self.endpoint, 4317).is_unprotected(self.tls)

    @property
    def target(self) -> str:
        """The endpoint as a gRPC target."""
        return GrpcEndpoint(self.endpoint, 4317).target

    @property
    def host_and_port(self) -> tuple[str, int] | None:
        """The host that the system resolves; None for any other gRPC target."""
        return GrpcEndpoint(self.endpoint, 4317).host_and_port

    @property
    def listed_addresses(self) -> list[str]:
        """The targets of `ipv4:` and `ipv6:` with several addresses; empty for any other target."""
        return GrpcEndpoint(self.endpoint, 4317).listed_addresses


class OtlpHttpConfig(OtlpConfig):
    """The options of `otlp_http`."""

    timeout: Duration = 30.0
    retry_on_failure: HttpRetryConfig = HttpRetryConfig.model_construct()
    metrics_endpoint: str = ""
    """The URL for metrics, in place of `endpoint` with `/v1/metrics`."""
    traces_endpoint: str = ""
    """The URL for spans, in place of `endpoint` with `/v1/traces`."""
    logs_endpoint: str = ""
    """The URL for log records, in place of `endpoint` with `/v1/logs`."""
    profiles_endpoint: str = ""
    """The URL for profiles, in place of `endpoint` with `/v1development/profiles`."""
    endpoint: str = Field("", validate_default=True)
    """The URL of the server. `/v1/metrics`, `/v1/traces`, `/v1/logs` and `/v1development/profiles` are appended."""
    encoding: Literal["proto", "json"] = "proto"
    compression: Literal["gzip", "zstd", "deflate", "none"] = "gzip"

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, fields: Any, info: ValidationInfo) -> Any:
        return fill_in(fields, info, SIGNAL_ENDPOINTS)

    @field_validator("compression", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return value or "none"

    @field_validator("metrics_endpoint", "traces_endpoint", "logs_endpoint", "profiles_endpoint", "endpoint")
    @classmethod
    def _endpoint_is_a_url(cls, endpoint: str, info: ValidationInfo) -> str:
        if not endpoint:
            if info.field_name == "endpoint" and not any(map(info.data.get, SIGNAL_ENDPOINTS.values())):
                raise ValueError("required: set the server to send to, for example http://localhost:4318")
            return endpoint
        return check_url(endpoint, "http://host:4318 or https://host:4318")

    @property
    def is_unprotected(self) -> bool:
        """Whether others on the network can read the requests."""
        urls = [urlsplit(self.url(signal)) for signal in SIGNALS]
        return any(url.scheme == "http" and not is_loopback(url.hostname or "") for url in urls)

    def shares_endpoint(self, signal: Signal) -> bool:
        """Whether the URL of a signal comes from `endpoint`."""
        return bool(self.endpoint) and not getattr(self, f"{signal}_endpoint")

    def url(self, signal: Signal) -> str:
        """The URL for a signal; empty if none is configured."""
        own: str = getattr(self, f"{signal}_endpoint")
        if own or not self.endpoint:
            return own
        url = urlsplit(self.endpoint)
        return urlunsplit(url._replace(path=url.path.rstrip("/") + URL_PATHS[signal]))
