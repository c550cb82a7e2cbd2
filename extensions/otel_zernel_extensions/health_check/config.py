"""The configuration of the health_check extension."""

from typing import Annotated

from pydantic import Field

from otel_zernel.authentication import AuthConfig
from otel_zernel.component import ComponentConfig
from otel_zernel.types import Address, Duration, ListenAddress
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig


class HealthCheckConfig(ComponentConfig):
    """The address of the health check. Names and defaults are those of the OpenTelemetry Collector."""

    endpoint: ListenAddress = Address("localhost", 13133)
    """Host and port to listen on."""
    tls: ServerTlsConfig | None = None
    """TLS of the server. null serves plain HTTP."""
    auth: AuthConfig | None = None
    """The extension that checks requests. null lets everybody read the state."""
    unhealthy_after: Duration = 0.0
    """Seconds after which an exporter that delivers nothing makes the answer 503; 0 for never."""
    path: Annotated[str, Field(pattern="^/")] = "/"
    """The path to answer. Every other path returns 404."""
