"""The configuration of the otlp receiver. Keys and defaults are those of the OpenTelemetry Collector."""

import re
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from otel_zernel.authentication import AuthConfig
from otel_zernel.batch import SIGNALS, Signal
from otel_zernel.component import ComponentConfig
from otel_zernel.types import Address, Duration, NamedSections, PositiveDuration, SecretHeaders, Section, parse_address
from otel_zernel_libraries.serving.access import HttpAuthConfig
from otel_zernel_libraries.serving.cors import CorsConfig
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig

Transport = Literal["tcp", "tcp4", "tcp6", "unix"]
Compression = Literal["", "gzip", "zstd", "zlib", "snappy", "deflate", "lz4", "x-snappy-framed"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
Path = Annotated[str, AfterValidator(lambda path: _absolute(path))]
"""A path of a URL. As in the OpenTelemetry Collector, the first slash may be left out."""
Count = Annotated[int, Field(ge=1)]
PROFILES_PATH: Final = "/v1development/profiles"
"""Fixed, as in the OpenTelemetry Collector."""


def _absolute(path: str) -> str:
    if not re.fullmatch(r"(?:/|[^/:])[!-~]*", path) or "?" in path or "#" in path:
        raise ValueError(f"{path!r} is not a URL path; write /v1/metrics")
    return path if path.startswith("/") else f"/{path}"


class KeepaliveServerParameters(Section):
    """When the server pings and closes connections. 0 means never."""

    max_connection_idle: Duration = 0.0
    """Close a connection without requests after this time."""
    max_connection_age: Duration = 0.0
    """Close any connection after this time, so that clients spread over new gateways."""
    max_connection_age_grace: Duration = 0.0
    """Time for running requests after that."""
    time: PositiveDuration = 7200.0
    """Ping a client that is silent for this time."""
    timeout: PositiveDuration = 20.0
    """Close the connection if the ping is not answered in this time."""


class KeepaliveEnforcementPolicy(Section):
    """Clients that ping more often are disconnected."""

    min_time: PositiveDuration = 300.0
    """The shortest time between two pings of a client."""
    permit_without_stream: bool = False
    """Allow pings while no request runs."""


class ServerKeepaliveConfig(Section):
    """Pings in both directions."""

    server_parameters: KeepaliveServerParameters = KeepaliveServerParameters.model_construct()
    enforcement_policy: KeepaliveEnforcementPolicy = KeepaliveEnforcementPolicy.model_construct()


class ProtocolConfig(Section):
    """The options that both protocols share."""

    endpoint: str
    """`host:port`, or the path of a socket with `transport: unix`."""
    transport: Transport = "tcp"
    """tcp, tcp4 (IPv4 only), tcp6 (IPv6 only) or unix."""
    auth: AuthConfig | None = None
    """The extension that decides which requests may enter."""
    include_metadata: bool = False
    """Only false: batches carry no metadata of their clients."""
    middlewares: list[Any] = Field(default_factory=list)
    """Only empty: there are no middleware extensions. `memory_limiter` is a processor."""

    @model_validator(mode="after")
    def _endpoint_is_an_address(self) -> Self:
        if self.transport == "unix":
            if not self.endpoint.startswith(("/", ".")):  # `@name`, an abstract socket, would have no permissions
                raise ValueError(f"endpoint: {self.endpoint!r} is not the path of a socket; write /run/otlp.sock")
        else:
            parse_address(self.endpoint)
        return self

    @field_validator("include_metadata")
    @classmethod
    def _metadata_is_not_kept(cls, value: bool) -> bool:
        if value:
            raise ValueError("not supported: batches carry no metadata of their clients; remove the key")
        return value

    @field_validator("middlewares")
    @classmethod
    def _there_are_no_middlewares(cls, value: list[Any]) -> list[Any]:
        if value:
            raise ValueError("there are no middleware extensions; use processors, for example memory_limiter")
        return value

    @property
    def address(self) -> Address:
        """The endpoint as host and port. Not for `transport: unix`."""
        return parse_address(self.endpoint)


class GrpcConfig(ProtocolConfig):
    """OTLP over gRPC."""

    endpoint: str = "localhost:4317"
    tls: ServerTlsConfig | None = None
    """The certificate of the server. Without it, the server speaks plaintext."""
    max_recv_msg_size_mib: Annotated[int, Field(ge=0, le=1024)] = 0
    """The largest message in MiB, as sent and as decompressed; 0 for gRPC's default of 4 MiB."""
    max_concurrent_streams: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Running requests of one connection; clients wait beyond. 0 for 1,000."""
    keepalive: ServerKeepaliveConfig = ServerKeepaliveConfig.model_construct()


class HttpConfig(ProtocolConfig):
    """OTLP over HTTP, as protobuf and as JSON."""

    endpoint: str = "localhost:4318"
    tls: ServerTlsConfig | None = None
    """The certificate of the server. Without it, the server speaks plaintext."""
    auth: HttpAuthConfig | None = None
    metrics_url_path: Path = "/v1/metrics"
    traces_url_path: Path = "/v1/traces"
    logs_url_path: Path = "/v1/logs"
    max_request_body_size: Annotated[int, Field(ge=0)] = 20 << 20
    """The largest body in bytes, as sent and again as decompressed; 0 for 20 MiB."""
    compression_algorithms: tuple[Compression, ...] = COMPRESSIONS
    """The accepted values of Content-Encoding. An empty text stands for requests without compression."""
    cors: CorsConfig | None = None
    response_headers: SecretHeaders = Field(default_factory=dict)
    """Headers of every answer. Values are never printed."""
    keep_alives_enabled: bool = True
    """Whether a connection stays open after a request."""
    read_header_timeout: PositiveDuration = 10.0
    """For the headers of a request."""
    read_timeout: PositiveDuration = 60.0
    """For the body of a request."""
    write_timeout: PositiveDuration = 30.0
    """For a client that does not read its answer."""
    idle_timeout: PositiveDuration = 75.0
    """For a connection without requests."""

    @field_validator("compression_algorithms", mode="before")
    @classmethod
    def _compression_is_possible(cls, value: Any) -> Any:
        for compression in value if isinstance(value, list | tuple) else ():
            if compression not in COMPRESSIONS:
                raise ValueError(
                    f"{compression!r} is not supported; use some of {', '.join(filter(None, COMPRESSIONS))}"
                )
        return value

    @model_validator(mode="after")
    def _paths_differ(self) -> Self:
        if len({*map(self.url_path, SIGNALS)}) < len(SIGNALS):
            raise ValueError(
                f"metrics_url_path, traces_url_path and logs_url_path must differ, and none is {PROFILES_PATH}"
            )
        return self

    def url_path(self, signal: Signal) -> str:
        """The path of a signal."""
        path: str = PROFILES_PATH if signal == "profiles" else getattr(self, f"{signal}_url_path")
        return path


class ProtocolsConfig(NamedSections):
    """The protocols to serve. A protocol that is not listed is not served."""

    grpc: GrpcConfig | None = None
    http: HttpConfig | None = None

    @model_validator(mode="after")
    def _at_least_one(self) -> Self:
        if self.grpc is None and self.http is None:
            raise ValueError("list at least one protocol: grpc, http or both")
        return self


class OtlpReceiverConfig(ComponentConfig):
    """The protocols, and the memory for requests on their way into the pipelines."""

    protocols: ProtocolsConfig = Field({}, validate_default=True)
    max_in_flight_mib: Count = 256
    """Received requests that the pipelines have not yet accepted, in MiB. Beyond, senders are asked to try again."""
