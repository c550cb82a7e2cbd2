"""The names of the three OTLP services."""

from collections.abc import Mapping
from typing import Final

from otel_zernel.batch import Signal

_PACKAGE: Final = "opentelemetry.proto.collector"
SERVICES: Final[Mapping[Signal, str]] = {
    "metrics": f"{_PACKAGE}.metrics.v1.MetricsService",
    "traces": f"{_PACKAGE}.trace.v1.TraceService",
    "logs": f"{_PACKAGE}.logs.v1.LogsService",
}
METHOD: Final = "Export"


def unused(signal: Signal) -> str:
    """The answer to a signal that no pipeline uses."""
    return f"no pipeline with this otlp receiver uses {signal}; add the receiver to a {signal} pipeline"
