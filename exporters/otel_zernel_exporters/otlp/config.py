"""What the two OTLP exporters can be told."""

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.engine.delivery_config import RemoteExporterConfig
from otel_zernel.types import Duration, PositiveDuration, Secret
from otel_zernel_exporters.otlp.environment import SIGNAL_ENDPOINTS, fill_in

# RFC 9110 tokens and printable ASCII: what both transports can carry.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^:/@\s\[\]]+):\d{1,5}")
_URL = re.compile(rf"(?P<scheme>https?)://(?P<place>{_HOST_AND_PORT.pattern})/?")
_TARGET = re.compile(
    r"(dns|ipv4|ipv6|unix|unix-abstract|vsock):\D"
)  # https://grpc.github.io/grpc/core/md_doc_naming.html


def _check_headers(headers: dict[str, Secret]) -> dict[str, Secret]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a header's name")
        if not _HEADER_VALUE.fullmatch(value.get_secret_value()):
            raise ValueError(f"the value of {name!r} has characters outside printable ASCII")
    return headers


Headers = Annotated[dict[str, Secret], AfterValidator(_check_headers)]


class TlsConfig(ComponentConfig):
    """How the connection is secured; the keys are the OpenTelemetry Collector's."""

    insecure: bool = False
    """Plaintext (gRPC only; for HTTP the endpoint's scheme decides)."""
    ca_file: str | None = None
    """Certificates, in PEM, that may sign the server's; the system's where not set."""
    cert_file: str | None = None
    """The client's own certificate, in PEM, for mutual TLS."""
    key_file: str | None = None
    """Its private key, in PEM."""
    insecure_skip_verify: bool = False
    """Accept any certificate (HTTP only)."""
    server_name_override: str | None = None
    """The name the server's certificate must have, where it is not the endpoint's host."""
    reload_interval: Duration = 0.0
    """How often the files are looked at for changes; 0 for never."""

    @model_validator(mode="after")
    def _certificate_and_key_go_together(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file go together: set both or neither")
        return self


class OtlpConfig(RemoteExporterConfig):
    """What both transports share."""

    headers: Headers = Field(default_factory=dict)
    """Sent with every request; never printed."""
    tls: TlsConfig = TlsConfig()


class KeepaliveConfig(ComponentConfig):
    """Pings that find a dead connection before a request does."""

    time: PositiveDuration = 10.0
    """Silence after which a ping is sent. Servers cut off clients that ping too often: gRPC's default is 5m."""
    timeout: PositiveDuration = 20.0
    """How long to wait for the answer."""
    permit_without_stream: bool = False
    """Also while no request is in flight."""


class OtlpGrpcConfig(OtlpConfig):
    """`otlp_grpc`."""

    endpoint: str = Field("", validate_default=True)
    """`host:port`, `http://host:port` (plaintext), `https://host:port`, or a gRPC target such as `dns:///host:port`."""
    compression: Literal["gzip", "deflate", "none"] = "gzip"
    keepalive: KeepaliveConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, fields: Any, info: ValidationInfo) -> Any:
        return fill_in(fields, info)

    @field_validator("compression", mode="before")
    @classmethod
    def _compression_is_possible(cls, value: object) -> object:
        if value == "zstd":
            raise ValueError("gRPC for Python has no zstd: use gzip, or otlp_http with zstd")
        return value or "none"

    @field_validator("endpoint")
    @classmethod
    def _endpoint_is_a_target(cls, endpoint: str) -> str:
        if not endpoint:
            raise ValueError("required; where to send, e.g. localhost:4317")
        if not _URL.fullmatch(endpoint) and not _HOST_AND_PORT.fullmatch(endpoint) and not _TARGET.match(endpoint):
            raise ValueError(
                f"{endpoint!r} is no gRPC endpoint; write host:4317, http://host:4317 or https://host:4317"
            )
        return endpoint

    @field_validator("headers")
    @classmethod
    def _headers_are_free(cls, headers: dict[str, Secret]) -> dict[str, Secret]:
        for name in headers:
            if name.lower().startswith("grpc-"):
                raise ValueError(f"{name!r}: gRPC keeps the names that start with grpc- for itself")
        return headers

    @field_validator("tls")
    @classmethod
    def _tls_is_possible(cls, tls: TlsConfig) -> TlsConfig:
        if tls.insecure_skip_verify and not tls.insecure:
            raise ValueError(
                "insecure_skip_verify: gRPC for Python always verifies; name the server's certificate in ca_file "
                "(and its name in server_name_override), or use otlp_http"
            )
        return tls

    @property
    def plaintext(self) -> bool:
        """No TLS: the scheme decides, or `tls::insecure` where there is none."""
        url = _URL.fullmatch(self.endpoint)
        return url["scheme"] == "http" if url else self.tls.insecure

    @property
    def target(self) -> str:
        """The endpoint as gRPC wants it."""
        url = _URL.fullmatch(self.endpoint)
        return url["place"] if url else self.endpoint


class OtlpHttpConfig(OtlpConfig):
    """`otlp_http`."""

    timeout: Duration = 30.0
    metrics_endpoint: str = ""
    """Where metrics go, in place of `endpoint` and `/v1/metrics`."""
    traces_endpoint: str = ""
    """Where spans go, in place of `endpoint` and `/v1/traces`."""
    endpoint: str = Field("", validate_default=True)
    """The server's URL, to which `/v1/metrics` and `/v1/traces` are added."""
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

    @field_validator("metrics_endpoint", "traces_endpoint", "endpoint")
    @classmethod
    def _endpoint_is_a_url(cls, endpoint: str, info: ValidationInfo) -> str:
        if not endpoint:
            if info.field_name == "endpoint" and not any(map(info.data.get, SIGNAL_ENDPOINTS.values())):
                raise ValueError("required; where to send, e.g. http://localhost:4318")
            return endpoint
        url = urlsplit(endpoint)
        if url.scheme not in {"http", "https"} or not url.hostname or url.port == 0:  # port: ValueError if too large
            raise ValueError(f"{endpoint!r} is no URL; write http://host:4318 or https://host:4318")
        if url.username or url.password:
            raise ValueError("a URL with a password in it gets printed; put an authorization into headers")
        return endpoint

    def url(self, signal: Literal["metrics", "traces"]) -> str:
        """Where a signal goes; empty if nowhere."""
        own = self.metrics_endpoint if signal == "metrics" else self.traces_endpoint
        return own or (f"{self.endpoint.rstrip('/')}/v1/{signal}" if self.endpoint else "")
