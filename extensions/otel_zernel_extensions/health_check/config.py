"""The configuration of the health check."""

from typing import Annotated

from pydantic import Field

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Address, ListenAddress


class HealthCheckConfig(ComponentConfig):
    """Where to ask; names and defaults as in the OpenTelemetry Collector."""

    endpoint: ListenAddress = Address("localhost", 13133)
    """Host and port to listen on."""
    path: Annotated[str, Field(pattern="^/")] = "/"
    """The path that answers; any other is not found."""
