"""The three OTLP services."""

from collections.abc import Mapping
from typing import Final

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from otel_zernel.batch import Signal

_PACKAGE: Final = "opentelemetry.proto.collector"
SERVICES: Final[Mapping[Signal, str]] = {
    "metrics": f"{_PACKAGE}.metrics.v1.MetricsService",
    "traces": f"{_PACKAGE}.trace.v1.TraceService",
    "logs": f"{_PACKAGE}.logs.v1.LogsService",
}
METHOD: Final = "Export"
FILES: Final = tuple(module.DESCRIPTOR for module in (metrics_service_pb2, trace_service_pb2, logs_service_pb2))
"""The descriptors of the files that declare the services."""
