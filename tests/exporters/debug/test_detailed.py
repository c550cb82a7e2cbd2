"""The verbosity `detailed` prints every field, in the layout of otelcol."""

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Attributes, key_values
from tests.exporters.debug.showing import NOON, log_records, one_span, shown
from tests.otlp import data, number, total


async def test_detailed_shows_every_point_in_otelcols_layout() -> None:
    attributes: Attributes = {"rank": 0, "ok": True, "name": "a", "loss": 0.5}
    point = number(7, attributes, NOON, start_time_unix_nano=NOON - 10**9)
    steps = total("steps", point, unit="{step}", description="Steps done")
    metrics = data(steps, resource={"host.name": "train-01"}, scope="zernel", version="1.0")
    metrics.resource_metrics[0].schema_url = "https://example.org"
    assert await shown(Batch(metrics=metrics), "detailed") == (
        "ResourceMetrics #0\n"
        "Resource SchemaURL: https://example.org\n"
        "Resource attributes:\n"
        "     -> host.name: Str(train-01)\n"
        "ScopeMetrics #0\n"
        "ScopeMetrics SchemaURL: \n"
        "InstrumentationScope zernel 1.0\n"
        "Metric #0\n"
        "Descriptor:\n"
        "     -> Name: steps\n"
        "     -> Description: Steps done\n"
        "     -> Unit: {step}\n"
        "     -> DataType: Sum\n"
        "     -> IsMonotonic: true\n"
        "     -> AggregationTemporality: Cumulative\n"
        "NumberDataPoints #0\n"
        "Data point attributes:\n"
        "     -> rank: Int(0)\n"
        "     -> ok: Bool(true)\n"
        "     -> name: Str(a)\n"
        "     -> loss: Double(0.5)\n"
        "StartTimestamp: 2023-11-15 11:59:59 +0000 UTC\n"
        "Timestamp: 2023-11-15 12:00:00 +0000 UTC\n"
        "Value: 7\n"
    )


async def test_detailed_shows_buckets_quantiles_and_exemplars() -> None:
    metrics = MetricsData()
    scope = metrics.resource_metrics.add().scope_metrics.add()
    explicit = scope.metrics.add(name="explicit").histogram.data_points.add(count=3, sum=6.5, explicit_bounds=[1, 2])
    explicit.bucket_counts.extend([0, 1, 2])
    explicit.exemplars.add(as_double=1.5, trace_id=b"\x01" * 16, filtered_attributes=key_values({"step": 7}))
    point = scope.metrics.add(name="exponential").exponential_histogram.data_points.add(count=6, zero_count=2)
    point.positive.bucket_counts.extend([1, 2])
    point.negative.bucket_counts.extend([1])
    scope.metrics.add(name="summary").summary.data_points.add(count=1).quantile_values.add(quantile=0.99, value=3)
    lines = (await shown(Batch(metrics=metrics), "detailed")).splitlines()
    expected = [
        "ExplicitBounds #1: 2.0",
        "Buckets #2, Count: 2",
        "Exemplar #0",
        "     -> Trace ID: 01010101010101010101010101010101",
        "     -> Value: 1.5",
        "          -> step: Int(7)",
        "Bucket [-2.000000, -1.000000), Count: 1",
        "Bucket [0, 0], Count: 2",
        "Bucket (1.000000, 2.000000], Count: 1",
        "Bucket (2.000000, 4.000000], Count: 2",
        "QuantileValue #0: Quantile 0.99, Value 3.0",
    ]
    assert [line for line in lines if line in expected] == expected


async def test_detailed_shows_spans_with_events_and_links() -> None:
    lines = (await shown(one_span(), "detailed")).splitlines()
    expected = [
        "ResourceSpans #0",
        "Span #0",
        "    Trace ID       : 01010101010101010101010101010101",
        "    Parent ID      : ",
        "    Kind           : Server",
        "    End time       : 2023-11-15 12:00:00.12 +0000 UTC",
        "    Status code    : Error",
        "    Status message : out of memory",
        '     -> tags: Slice(["a", "b"])',
        "SpanEvent #0",
        "     -> Timestamp: 2023-11-15 12:00:00.000000001 +0000 UTC",
        "          -> bytes: Int(8)",
        "SpanLink #0",
        "     -> ID: 0404040404040404",
    ]
    assert [line for line in lines if line in expected] == expected


async def test_detailed_shows_log_records_in_otelcols_layout() -> None:
    assert await shown(log_records(), "detailed") == (
        "ResourceLog #0\n"
        "Resource SchemaURL: https://example.org\n"
        "Resource attributes:\n"
        "     -> service.name: Str(trainer)\n"
        "ScopeLogs #0\n"
        "ScopeLogs SchemaURL: \n"
        "InstrumentationScope train.loop\n"
        "LogRecord #0\n"
        "ObservedTimestamp: 2023-11-15 12:00:00.000000005 +0000 UTC\n"
        "Timestamp: 2023-11-15 12:00:00 +0000 UTC\n"
        "SeverityText: INFO\n"
        "SeverityNumber: Info(9)\n"
        "Body: Str(epoch 3 begins)\n"
        "Trace ID: \n"
        "Span ID: \n"
        "Flags: 0\n"
        "LogRecord #1\n"
        "ObservedTimestamp: 2023-11-15 12:00:00.12 +0000 UTC\n"
        "Timestamp: 1970-01-01 00:00:00 +0000 UTC\n"
        "SeverityText: \n"
        "SeverityNumber: Error2(18)\n"
        "EventName: cuda.oom\n"
        'Body: Map({"oom": true})\n'
        "Attributes:\n"
        "     -> rank: Int(3)\n"
        "     -> service.name: Str(trainer)\n"
        "Trace ID: 01010101010101010101010101010101\n"
        "Span ID: 0202020202020202\n"
        "Flags: 1\n"
    )


@pytest.mark.parametrize("verbosity", ["basic", "normal", "detailed"])
async def test_unknown_and_empty_values_are_printed(verbosity: str) -> None:
    traces, metrics, logs = TracesData(), MetricsData(), LogsData()
    records = logs.resource_logs.add().scope_logs.add().log_records
    records.add(severity_number=99, time_unix_nano=2**64 - 1)
    records.add()
    traces.resource_spans.add().scope_spans.add().spans.add(kind=99, end_time_unix_nano=2**64 - 1)
    scope = metrics.resource_metrics.add().scope_metrics.add()
    scope.metrics.add(name="without data")
    scope.metrics.add(name="no value").gauge.data_points.add().attributes.add(key="empty")
    for value in (float("nan"), float("inf"), -0.0, 1e300):
        attributes = key_values({"number": value, "line": "a\nb"})
        scope.metrics.add(name="odd", unit="s").gauge.data_points.add(as_double=value, attributes=attributes)
    huge = scope.metrics.add(name="huge").exponential_histogram.data_points.add(scale=-(2**31))
    huge.positive.offset = 2**31 - 1
    huge.positive.bucket_counts.extend([1, 1])
    assert await shown(Batch(metrics=metrics, spans=traces, logs=logs), verbosity)
