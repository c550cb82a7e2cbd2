"""The configuration of the heartbeat receiver."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from otel_zernel.authentication import AuthConfig
from otel_zernel.component import ComponentConfig
from otel_zernel.types import Address, ListenAddress, PositiveDuration
from otel_zernel_libraries.serving.api.server import OptionalApiId
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig

Count = Annotated[int, Field(ge=1)]


class HeartbeatReceiverConfig(ComponentConfig):
    """The server for workers, the judgement of their silence, and the bounds of the kept state."""

    endpoint: ListenAddress = Address("localhost", 50051)
    """The address of the gRPC server."""
    tls: ServerTlsConfig | None = None
    """The certificate of the server. With `client_ca_file`, workers need a certificate, too."""
    auth: AuthConfig | None = None
    """The extension that checks the workers' credentials."""
    api: OptionalApiId = None
    """The extension of type `api` that serves the workers' state. Null serves it nowhere."""
    collection_interval: PositiveDuration = 10.0
    """Seconds between two emissions of metrics."""
    unknown_workers: Literal["accept", "refuse"] = "accept"
    """Whether a worker may send heartbeats before it has registered."""
    inactive_after: PositiveDuration = 30.0
    """Seconds without a heartbeat after which a worker is inactive."""
    forget_after: PositiveDuration = 3600.0
    """Seconds without a heartbeat after which a worker is removed."""
    queue_size: Count = 10
    """Heartbeats of a worker that wait for the next emission. Beyond, the oldest one is dropped and counted."""
    max_workers: Count = 10000
    """Workers that are kept. Beyond, a new one replaces the longest inactive one, or one of a client with too many."""
    max_tasks: Annotated[int, Field(ge=0, le=1000)] = 100
    """Running tasks of a worker that are kept. Further ones are dropped and counted."""
    push_interval: PositiveDuration = 1.0
    """Seconds between two messages of changes to a WebSocket."""
    max_clients: Count = 1000
    """Open WebSockets. Further ones are refused with 503."""
    max_recv_msg_size_mib: Annotated[int, Field(ge=1, le=64)] = 1
    """The largest message in MiB, as sent and as decompressed."""
    max_in_flight_mib: Count = 64
    """Received messages and open streams, in MiB. Beyond, workers are asked to try again."""

    @model_validator(mode="after")
    def _forgets_later(self) -> Self:
        if self.forget_after < self.inactive_after:
            raise ValueError("forget_after must not be shorter than inactive_after")
        return self
