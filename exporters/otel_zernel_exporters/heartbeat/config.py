"""The configuration of the heartbeat exporter."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from otel_zernel.authentication import AuthConfig
from otel_zernel.component import ComponentConfig
from otel_zernel.types import PositiveDuration, Ratio
from otel_zernel_libraries.clients.endpoint_config import GrpcEndpoint, check_tls_of_grpc
from otel_zernel_libraries.clients.tls_config import TlsConfig

_PORT = 50051
_LONGEST_ID = 256
"""Characters. Masters keep the ids of all workers in memory."""


class HeartbeatConfig(ComponentConfig):
    """The master, the name of this worker, and what the heartbeats say."""

    endpoint: str = Field("", validate_default=True)
    """The master: `host:port` (TLS), `http://host:port` (plaintext), `https://host:port`, or a gRPC target."""
    worker_id: Annotated[str, Field(max_length=_LONGEST_ID)] = ""
    """The name of this worker, which no other worker may have. By default `host.name` of the metrics, else of here."""
    worker_ip: str = ""
    """The address of this worker. By default that from which it reaches the master."""
    interval: PositiveDuration = 5.0
    """Seconds between heartbeats."""
    jitter: Ratio = 0.1
    """The random share by which an interval is longer or shorter, so that workers do not send at the same moment."""
    timeout: PositiveDuration = 5.0
    """Seconds to wait for the answer to a heartbeat. Then the worker connects again."""
    stale_after: PositiveDuration = 60.0
    """Seconds after which a value that no metric renews is not sent any more."""
    scope: Literal["host", "cgroup"] = "host"
    """Whether CPU and memory are those of the host, or those of the cgroup: in a container, of its limits."""
    storage_mount: str = ""
    """The mount point whose space is sent as storage. By default all filesystems together."""
    max_tasks: Annotated[int, Field(ge=0)] = 1000
    """Running tasks in a heartbeat at most: those with the most memory."""
    auth: AuthConfig | None = None
    """The extension that adds credentials to each request."""
    tls: TlsConfig = TlsConfig.model_construct()

    @field_validator("endpoint")
    @classmethod
    def _endpoint_is_a_target(cls, endpoint: str) -> str:
        return GrpcEndpoint(endpoint, _PORT).check()

    @field_validator("tls")
    @classmethod
    def _tls_is_possible(cls, tls: TlsConfig) -> TlsConfig:
        return check_tls_of_grpc(tls)

    @property
    def master(self) -> GrpcEndpoint:
        """The endpoint, with its parts."""
        return GrpcEndpoint(self.endpoint, _PORT)
