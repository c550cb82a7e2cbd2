"""The names of OTTL for numbers in OTLP."""

from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

METRIC_TYPES = {None: 0, "gauge": 1, "sum": 2, "histogram": 3, "exponential_histogram": 4, "summary": 5}
"""`metric.type` in OTTL, by the name of the field in OTLP's `Metric`."""
SEVERITIES: dict[str, int] = {name.removeprefix("SEVERITY_NUMBER_"): int(n) for name, n in SeverityNumber.items()}
"""The short names of severities: `WARN2` is 14."""
SPAN_KINDS = {number: name.removeprefix("SPAN_KIND_").capitalize() for name, number in Span.SpanKind.items()}
"""The names of span kinds in configurations: `Client`."""

ENUMS: dict[str, int] = {
    **{f"METRIC_DATA_TYPE_{(name or 'none').upper()}": number for name, number in METRIC_TYPES.items()},
    **{name: int(number) for name, number in AggregationTemporality.items()},
    **{name: int(number) for name, number in Span.SpanKind.items()},
    **{name: int(number) for name, number in Status.StatusCode.items()},
    **{name: int(number) for name, number in SeverityNumber.items()},
}
