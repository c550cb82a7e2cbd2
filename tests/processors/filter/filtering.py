"""A filter processor, and a batch of each signal."""

from typing import Any

from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import key_values
from otel_zernel.testing import make_context
from otel_zernel_processors.filter import FilterProcessor


def processor(reader: InMemoryMetricReader | None = None, **options: Any) -> FilterProcessor:
    meter = MeterProvider([reader]).get_meter("test") if reader else None
    context = make_context("processors", "filter", meter=meter)
    return FilterProcessor(FilterProcessor.Config.model_validate(options), context)


def after(batch: Batch, **options: Any) -> Batch | None:
    """The batch that comes out; None if nothing does."""
    outputs = list(processor(**options).process(batch))
    assert len(outputs) <= 1
    return outputs[0] if outputs else None


def metrics() -> Batch:
    """Two hosts, each with the gauges `power` (values 0 and 1) and `speed` (value 2)."""
    message = MetricsData()
    for host in ("a", "b"):
        resource = message.resource_metrics.add()
        resource.resource.attributes.extend(key_values({"host.name": host}))
        scope = resource.scope_metrics.add()
        scope.scope.name = f"scope-{host}"
        power = scope.metrics.add(name="power").gauge
        for value in (0, 1):
            power.data_points.add(as_double=value, attributes=key_values({"gpu": str(value)}))
        scope.metrics.add(name="speed").gauge.data_points.add(as_int=2)
    return Batch.from_bytes(metrics=message.SerializeToString())


def spans() -> Batch:
    """The spans `step` (a client) with two events, and `health` (a server)."""
    message = TracesData()
    resource = message.resource_spans.add()
    resource.resource.attributes.extend(key_values({"service.name": "trainer"}))
    scope = resource.scope_spans.add()
    scope.scope.name, scope.scope.version = "torch", "2.4"
    step = scope.spans.add(name="step", kind=Span.SPAN_KIND_CLIENT, attributes=key_values({"rank": 0}))
    step.events.add(name="oom")
    step.events.add(name="log")
    scope.spans.add(name="health", kind=Span.SPAN_KIND_SERVER)
    return Batch.from_bytes(spans=message.SerializeToString())


def logs() -> Batch:
    """Records with the severities 0, 5 (DEBUG), 9 (INFO) and 17 (ERROR), whose bodies name them."""
    message = LogsData()
    scope = message.resource_logs.add().scope_logs.add()
    for severity, name in ((0, "NONE"), (5, "DEBUG"), (9, "INFO"), (17, "ERROR")):
        record = scope.log_records.add(severity_text=name, attributes=key_values({"level": name}))
        record.severity_number = severity  # type: ignore[assignment]  # the stubs want the enum
        record.body.string_value = f"body {name}"
    return Batch.from_bytes(logs=message.SerializeToString())


def points_of(batch: Batch | None) -> list[tuple[str, str, float]]:
    """Host, metric and value of each point, decoded from the batch's bytes."""
    message = MetricsData.FromString(batch.bytes_of("metrics")) if batch else MetricsData()
    return [
        (resource.resource.attributes[0].value.string_value, metric.name, point.as_double or point.as_int)
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.gauge.data_points
    ]


def spans_of(batch: Batch | None) -> list[tuple[str, int]]:
    """Name and number of events of each span."""
    message = TracesData.FromString(batch.bytes_of("traces")) if batch else TracesData()
    found = [span for resource in message.resource_spans for scope in resource.scope_spans for span in scope.spans]
    return [(span.name, len(span.events)) for span in found]


def records_of(batch: Batch | None) -> list[str]:
    message = LogsData.FromString(batch.bytes_of("logs")) if batch else LogsData()
    scopes = [scope for resource in message.resource_logs for scope in resource.scope_logs]
    return [record.severity_text for scope in scopes for record in scope.log_records]


ALL_POINTS = points_of(metrics())
