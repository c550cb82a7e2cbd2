"""The configuration of the two OTLP exporters."""

import re
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from otel_zernel.authentication import AuthConfig
from otel_zernel.batch import SIGNALS, Signal
from otel_zernel.component import ComponentConfig
from otel_zernel.delivery_config import RemoteExporterConfig
from otel_zernel.temporality import SeriesMemoryConfig, Temporality
from otel_zernel.text import shown_url
from otel_zernel.types import Duration, PositiveDuration, Secret, SecretHeaders
from otel_zernel_exporters.otlp.addresses import is_loopback
from otel_zernel_exporters.otlp.environment import SIGNAL_ENDPOINTS, fill_in
from otel_zernel_exporters.otlp.tls_config import TlsConfig

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^:/@\s\[\]]+):\d{1,5}")
_URL = re.compile(rf"(?P<scheme>https?)://(?P<place>{_HOST_AND_PORT.pattern})/?")
# https://grpc.github.io/grpc/core/md_doc_naming.html
_TARGET = re.compile(r"(dns|ipv4|ipv6|unix|unix-abstract|vsock):\D|ipv4:\d+\.")


class OtlpConfig(RemoteExporterConfig):
    """The options that both transports share."""

    headers: SecretHeaders = Field(default_factory=dict)
    """Headers of every request. Values are never printed."""
    auth: AuthConfig | None = None
    """The extension that adds credentials to each request."""
    tls: TlsConfig = TlsConfig()
    temporality: Temporality = "cumulative"
    """What the server gets: `cumulative`, `delta`, or `as_is`. Prometheus and Mimir refuse delta."""
    conversion: SeriesMemoryConfig = SeriesMemoryConfig()
    """The limits of the memory for the conversion. Series that have the temporality already take none."""


class KeepaliveConfig(ComponentConfig):
    """Pings that find a dead connection before a request does."""

    time: PositiveDuration = 10.0
    """Seconds of silence before a ping. Servers disconnect clients that ping more often than allowed: by default 5m."""
    timeout: PositiveDuration = 20.0
    """Seconds to wait for the answer to a ping."""
    permit_without_stream: bool = False
    """Ping also while no request is in flight."""


class OtlpGrpcConfig(OtlpConfig):
    """The options of `otlp_grpc`."""

    endpoint: str = Field("", validate_default=True)
    """`host:port`, `http://host:port` (plaintext), `https://host:port`, or a gRPC target such as `dns:///host:port`."""
    compression: Literal["gzip", "deflate", "none"] = "gzip"
    keepalive: KeepaliveConfig | None = None
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
        if not endpoint:
            raise ValueError("required: set the server to send to, for example localhost:4317")
        if not _URL.fullmatch(endpoint) and not _HOST_AND_PORT.fullmatch(endpoint) and not _TARGET.match(endpoint):
            raise ValueError(
                f"{shown_url(endpoint)!r} is not a gRPC endpoint; write host:4317, http://host:4317 or https://host:4317"
            )
        return endpoint

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
        if tls.insecure_skip_verify and not tls.insecure:
            raise ValueError(
                "insecure_skip_verify: gRPC for Python always verifies; set ca_file to the server's certificate "
                "(and server_name_override to its name), or use otlp_http"
            )
        if not tls.insecure and (tls.min_version != "1.2" or tls.max_version == "1.2"):
            raise ValueError(
                "min_version and max_version: gRPC for Python always accepts TLS 1.2 and 1.3; remove the keys, or use "
                "otlp_http"
            )
        return tls

    @property
    def plaintext(self) -> bool:
        """Whether to use no TLS: the scheme decides; without a scheme, `tls::insecure`."""
        url = _URL.fullmatch(self.endpoint)
        return url["scheme"] == "http" if url else self.tls.insecure

    @property
    def is_unprotected(self) -> bool:
        """Whether others on the network can read the requests."""
        host = self.host_and_port
        return self.plaintext and not self.target.startswith("unix") and not (host and is_loopback(host[0]))

    @property
    def target(self) -> str:
        """The endpoint as a gRPC target."""
        url = _URL.fullmatch(self.endpoint)
        return url["place"] if url else self.endpoint

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
        return [f"{scheme}:{one}" for one in rest.split(",")] if scheme in {"ipv4", "ipv6"} else []


class OtlpHttpConfig(OtlpConfig):
    """The options of `otlp_http`."""

    timeout: Duration = 30.0
    metrics_endpoint: str = ""
    """The URL for metrics, in place of `endpoint` with `/v1/metrics`."""
    traces_endpoint: str = ""
    """The URL for spans, in place of `endpoint` with `/v1/traces`."""
    logs_endpoint: str = ""
    """The URL for log records, in place of `endpoint` with `/v1/logs`."""
    endpoint: str = Field("", validate_default=True)
    """The URL of the server. `/v1/metrics`, `/v1/traces` and `/v1/logs` are appended."""
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

    @field_validator("metrics_endpoint", "traces_endpoint", "logs_endpoint", "endpoint")
    @classmethod
    def _endpoint_is_a_url(cls, endpoint: str, info: ValidationInfo) -> str:
        if not endpoint:
            if info.field_name == "endpoint" and not any(map(info.data.get, SIGNAL_ENDPOINTS.values())):
                raise ValueError("required: set the server to send to, for example http://localhost:4318")
            return endpoint
        url = urlsplit(endpoint)
        if url.scheme not in {"http", "https"} or not url.hostname or url.port == 0:  # port: ValueError if too large
            raise ValueError(f"{shown_url(endpoint)!r} is not a URL; write http://host:4318 or https://host:4318")
        if url.username or url.password:
            raise ValueError("the URL contains a password, which would be printed; use headers::authorization instead")
        return endpoint

    @property
    def is_unprotected(self) -> bool:
        """Whether others on the network can read the requests."""
        urls = [urlsplit(self.url(signal)) for signal in SIGNALS]
        return any(url.scheme == "http" and not is_loopback(url.hostname or "") for url in urls)

    def url(self, signal: Signal) -> str:
        """The URL for a signal; empty if none is configured."""
        own: str = getattr(self, f"{signal}_endpoint")
        if own or not self.endpoint:
            return own
        url = urlsplit(self.endpoint)
        return urlunsplit(url._replace(path=f"{url.path.rstrip('/')}/v1/{signal}"))
