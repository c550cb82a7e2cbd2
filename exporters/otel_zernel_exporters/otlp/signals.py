"""How the signals are encoded, sent and answered, for both transports."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import Context
from otel_zernel.otlp.json import to_json

Response = (
    ExportMetricsServiceResponse
    | ExportTraceServiceResponse
    | ExportLogsServiceResponse
    | ExportProfilesServiceResponse
)

_COLLECTOR = "/opentelemetry.proto.collector"


@dataclass(frozen=True, slots=True)
class OtlpSignal:
    """One signal: its gRPC method, and the response."""

    name: Signal
    items: str
    """The unit of the signal, as log messages name it."""
    method: str
    """The path of the gRPC method."""
    response: type[Response]
    rejected: Callable[[Any], int]
    """The number of rejected items in a response."""

    def encode_json(self, batch: Batch) -> bytes:
        """The signal as OTLP/JSON."""
        return to_json(batch.message(self.name))


METRICS = OtlpSignal(
    "metrics",
    "data points",
    f"{_COLLECTOR}.metrics.v1.MetricsService/Export",
    ExportMetricsServiceResponse,
    lambda response: response.partial_success.rejected_data_points,
)
TRACES = OtlpSignal(
    "traces",
    "spans",
    f"{_COLLECTOR}.trace.v1.TraceService/Export",
    ExportTraceServiceResponse,
    lambda response: response.partial_success.rejected_spans,
)
LOGS = OtlpSignal(
    "logs",
    "log records",
    f"{_COLLECTOR}.logs.v1.LogsService/Export",
    ExportLogsServiceResponse,
    lambda response: response.partial_success.rejected_log_records,
)
PROFILES = OtlpSignal(
    "profiles",
    "profile samples",
    f"{_COLLECTOR}.profiles.v1development.ProfilesService/Export",
    ExportProfilesServiceResponse,
    lambda response: response.partial_success.rejected_profiles,
)
_SIGNALS: Mapping[Signal, OtlpSignal] = {signal.name: signal for signal in (METRICS, TRACES, LOGS, PROFILES)}


def all_signals() -> Iterator[OtlpSignal]:
    """Every signal."""
    return iter(_SIGNALS.values())


def signals_of(batch: Batch) -> Iterator[OtlpSignal]:
    """The signals of a batch. Each is a request."""
    return (_SIGNALS[signal] for signal in batch.signals)


def count_partial_success(response: Response, signal: OtlpSignal, batch: Batch, context: Context) -> None:
    """Counts and logs the items that the server rejected. They must not be sent again."""
    if not response.HasField("partial_success"):
        return
    message = response.partial_success.error_message[:500]
    rejected = min(max(signal.rejected(response), 0), batch.count_of(signal.name))
    if rejected:
        context.drop(rejected, "partial_success")
        context.logger.warning("The server rejected %d %s: %s", rejected, signal.items, message)
    elif message:
        context.logger.warning("The server accepted all %s, with a message: %s", signal.items, message)


def read_response(encoded: bytes, signal: OtlpSignal, batch: Batch, context: Context) -> None:
    """Reads the response to a request that the server accepted. An invalid one changes nothing about that."""
    try:
        response = signal.response.FromString(encoded)
    except DecodeError as error:
        context.logger.warning(
            "The server accepted the %s, but its response is not valid OTLP: %s", signal.items, error
        )
        return
    count_partial_success(response, signal, batch, context)
