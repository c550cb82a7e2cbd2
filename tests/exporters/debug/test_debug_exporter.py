"""The output of the debug exporter."""

import io
import os
from collections import Counter
from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData, SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Status, TracesData

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel.otlp.points import key_values
from otel_zernel.testing import Dropped, FakeClock, make_context
from otel_zernel_exporters.debug import DebugExporter
from otel_zernel_exporters.debug.quantity import readable

NOON = 1_700_049_600_000_000_000  # 2023-11-15T12:00:00Z
UUIDS = ("GPU-5fd4f087-86f3-7a43-b711-4771313afc50", "GPU-bc7a12ab-4998-fdc5-0785-2678a929a142")


def debug_exporter(stream: io.TextIOBase, context: Context | None = None, **settings: object) -> DebugExporter:
    config = DebugExporter.Config.model_validate(settings)
    return DebugExporter(config, context or make_context("exporters", "debug"), stream)  # type: ignore[arg-type]  # typeshed: TextIOBase is no TextIO


async def shown(batch: Batch, verbosity: str, **settings: Any) -> str:
    stream = io.StringIO()
    async with debug_exporter(stream, verbosity=verbosity, **settings) as exporter:
        await exporter.export(batch)
    return stream.getvalue()


def node() -> Batch:
    """Two GPUs with launch latencies as summaries, a utilization each, and two readings of the memory."""
    metrics = MetricsData()
    for index, uuid in enumerate(UUIDS):
        resource = metrics.resource_metrics.add()
        who: dict[str, Any] = {"host.name": "train-01", "hw.id": uuid, "index": index, "device": f"nvidia{index}"}
        resource.resource.attributes.extend(key_values(who))
        scope = resource.scope_metrics.add()
        latency = scope.metrics.add(name="cuda.launch.latency", unit="s")
        summary = latency.summary.data_points.add(count=1250, sum=0.009, time_unix_nano=NOON)
        for quantile, value in ((1, 0.002), (0, 3.1e-6), (0.5, 6e-6), (0.999, 1.1e-4)):
            summary.quantile_values.add(quantile=quantile, value=value)
        utilization = scope.metrics.add(name="hw.gpu.utilization", unit="1")
        task = key_values({"hw.gpu.task": "general", "hw.id": uuid})
        utilization.gauge.data_points.add(as_double=0.97, attributes=task, time_unix_nano=NOON)
        memory = scope.metrics.add(name="hw.gpu.memory.usage", unit="By")
        for mebibytes in (2204, 73420):
            memory.gauge.data_points.add(as_int=mebibytes * 2**20, time_unix_nano=NOON)
    return Batch(metrics=metrics)


def one_span() -> Batch:
    traces = TracesData()
    resource = traces.resource_spans.add()
    resource.resource.attributes.extend(key_values({"service.name": "trainer"}))
    span = resource.scope_spans.add().spans.add(name="train step", trace_id=b"\x01" * 16, span_id=b"\x02" * 8, kind=2)
    span.start_time_unix_nano, span.end_time_unix_nano = NOON, NOON + 120_000_000
    span.status.code, span.status.message = Status.STATUS_CODE_ERROR, "out of memory"
    span.attributes.extend(key_values({"step": 7, "tags": ["a", "b"]}))
    span.events.add(name="oom", time_unix_nano=NOON + 1, attributes=key_values({"bytes": 8}))
    span.links.add(trace_id=b"\x03" * 16, span_id=b"\x04" * 8)
    return Batch(spans=traces)


def log_records() -> Batch:
    logs = LogsData()
    resource = logs.resource_logs.add(schema_url="https://example.org")
    resource.resource.attributes.extend(key_values({"service.name": "trainer"}))
    scope = resource.scope_logs.add()
    scope.scope.name = "train.loop"
    first = scope.log_records.add(time_unix_nano=NOON, observed_time_unix_nano=NOON + 5, severity_text="INFO")
    first.severity_number = SeverityNumber.SEVERITY_NUMBER_INFO
    first.body.string_value = "epoch 3 begins"
    second = scope.log_records.add(observed_time_unix_nano=NOON + 120_000_000, trace_id=b"\x01" * 16, flags=1)
    second.severity_number = SeverityNumber.SEVERITY_NUMBER_ERROR2
    second.body.kvlist_value.values.extend(key_values({"oom": True}))
    second.attributes.extend(key_values({"rank": 3, "service.name": "trainer"}))
    second.span_id, second.event_name = b"\x02" * 8, "cuda.oom"
    return Batch(logs=logs)


@pytest.mark.parametrize(
    ("globs", "names"),
    [(["cuda.*"], ["cuda.launch.latency"]), (["hw.gpu.u*", "*usage"], ["hw.gpu.utilization", "hw.gpu.memory.usage"])],
)
async def test_only_configured_metrics_are_printed(globs: list[str], names: list[str]) -> None:
    lines = (await shown(node(), "normal", metrics=globs)).splitlines()
    assert [line.split()[0] for line in lines[1:] if line and not line.startswith(" ")] == names
    assert await shown(node(), "basic", metrics=["nothing"]) == ""


async def test_basic_prints_the_counts_of_otelcol() -> None:
    every = Batch(node().edit_metrics(), one_span().edit_spans(), log_records().edit_logs())
    assert await shown(every, "basic") == (
        'Metrics {"resource metrics": 2, "metrics": 6, "data points": 8}\n'
        'Traces {"resource spans": 1, "spans": 1}\n'
        'Logs {"resource logs": 1, "log records": 2}\n'
    )


async def test_normal_prints_a_table_for_each_metric_and_a_line_for_each_series() -> None:
    assert await shown(node(), "normal") == (
        "2023-11-15T12:00:00Z host.name=train-01\n"
        "cuda.launch.latency                count       mean        min        p50      p99.9        max\n"
        "  index=0                          1,250    7.20 us    3.10 us    6.00 us     110 us    2.00 ms\n"
        "  index=1                          1,250    7.20 us    3.10 us    6.00 us     110 us    2.00 ms\n"
        "hw.gpu.utilization                 value\n"
        "  index=0 hw.gpu.task=general     97.0 %\n"
        "  index=1 hw.gpu.task=general     97.0 %\n"
        "hw.gpu.memory.usage                value     points\n"
        "  index=0                       71.7 GiB          2\n"
        "  index=1                       71.7 GiB          2\n"
        "\n"
    )


async def test_normal_keeps_a_long_label_if_only_it_distinguishes_series_and_sorts_numbers() -> None:
    metrics = MetricsData()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="errors", unit="{error}")
    for number in (10, 9):
        attributes = key_values({"uuid": f"GPU-5fd4f087-86f3-7a43-{number}", "op": "all reduce"})
        metric.sum.data_points.add(as_int=number * 1000, attributes=attributes, time_unix_nano=NOON)
    assert await shown(Batch(metrics=metrics), "normal") == (
        '2023-11-15T12:00:00Z op="all reduce"\n'
        "errors                                value\n"
        "  uuid=GPU-5fd4f087-86f3-7a43-9       9,000\n"
        "  uuid=GPU-5fd4f087-86f3-7a43-10     10,000\n"
        "\n"
    )


async def test_normal_cuts_a_long_heading() -> None:
    metrics = MetricsData()
    resource = metrics.resource_metrics.add()
    resource.resource.attributes.extend(key_values({f"attribute.{number}": "value" for number in range(20)}))
    resource.scope_metrics.add().metrics.add(name="m").gauge.data_points.add(time_unix_nano=NOON)
    heading, *_ = (await shown(Batch(metrics=metrics), "normal")).splitlines()
    assert heading.endswith(" attribute.4=value …")


async def test_normal_shows_the_quantiles_of_histograms() -> None:
    metrics = MetricsData()
    scope = metrics.resource_metrics.add().scope_metrics.add()
    explicit = scope.metrics.add(name="a", unit="s").histogram.data_points
    explicit.add(count=4, sum=0.002, explicit_bounds=[0.001, 0.002], bucket_counts=[2, 2, 0], time_unix_nano=NOON)
    exponential = scope.metrics.add(name="b", unit="s").exponential_histogram.data_points.add(count=4, min=1, max=8)
    exponential.positive.bucket_counts.extend([2, 0, 2])
    _, _, first, _, second, *_ = (await shown(Batch(metrics=metrics), "normal")).splitlines()
    assert first.split() == ["4", "500", "us", "1.00", "ms", "1.80", "ms", "1.98", "ms"]
    assert second.split() == ["4", "0", "s", "1", "s", "2", "s", "6.96", "s", "7.89", "s", "8", "s"]


async def test_normal_shows_histograms_by_count_mean_and_range() -> None:
    metrics = MetricsData()
    scope = metrics.resource_metrics.add().scope_metrics.add()
    explicit = scope.metrics.add(name="a", unit="s").histogram
    explicit.data_points.add(count=4, sum=0.002, min=0.0001, max=0.001, time_unix_nano=NOON)
    scope.metrics.add(name="b").exponential_histogram.data_points.add(time_unix_nano=NOON)
    assert await shown(Batch(metrics=metrics), "normal") == (
        "2023-11-15T12:00:00Z\n"
        "a       count       mean        min        max\n"
        "            4     500 us     100 us    1.00 ms\n"
        "b       count\n"
        "            0\n"
        "\n"
    )


async def test_normal_prints_a_span_in_one_line_below_its_resource() -> None:
    spans = one_span()
    later = spans.edit_spans().resource_spans[0].scope_spans[0].spans.add(name="load", span_id=b"\x05" * 8)
    later.start_time_unix_nano, later.end_time_unix_nano = NOON + 20_000_000, NOON + 30_000_000
    later.attributes.extend(key_values({"service.name": "trainer", "batch": 3}))
    assert await shown(spans, "normal") == (
        "2023-11-15T12:00:00Z service.name=trainer\n"
        '       +0 s     120 ms  "train step"  error  step=7 tags="[\\"a\\", \\"b\\"]" '
        "trace_id=01010101010101010101010101010101 span_id=0202020202020202\n"
        "   +20.0 ms    10.0 ms  load          batch=3 span_id=0505050505050505\n"
        "\n"
    )


async def test_normal_prints_a_log_record_in_one_line_below_its_resource() -> None:
    assert await shown(log_records(), "normal") == (
        "2023-11-15T12:00:00Z service.name=trainer\n"
        '       +0 s  INFO    "epoch 3 begins"\n'
        '     +120 ms  ERROR2  "{\\"oom\\": true}"  rank=3 event=cuda.oom '
        "trace_id=01010101010101010101010101010101 span_id=0202020202020202\n"
        "\n"
    ).replace("     +120 ms", "    +120 ms")


async def test_normal_keeps_each_log_record_on_its_line() -> None:
    logs = LogsData()
    record = logs.resource_logs.add().scope_logs.add().log_records.add(severity_text="a\nb", time_unix_nano=NOON)
    record.body.string_value = "two\nlines \x1b[2J"
    assert (await shown(Batch(logs=logs), "normal")).splitlines()[1:] == [
        '       +0 s  "a\\nb"  "two\\nlines \\u001b[2J"',
        "",
    ]


async def test_long_labels_come_last_in_a_heading() -> None:
    batch = node()
    batch.edit_metrics().resource_metrics[0].resource.attributes.insert(
        0, *key_values({"a.time": "2026-01-15T08:00:05.000+00:00"})
    )
    del batch.edit_metrics().resource_metrics[1:]
    heading = (await shown(batch, "normal")).splitlines()[0]
    assert " device=nvidia0 a.time=2026-01-15T08:00:05.000+00:00" in heading


async def test_detailed_shows_every_point_in_otelcols_layout() -> None:
    metrics = MetricsData()
    resource = metrics.resource_metrics.add(schema_url="https://example.org")
    resource.resource.attributes.extend(key_values({"host.name": "train-01"}))
    scope = resource.scope_metrics.add()
    scope.scope.name, scope.scope.version = "zernel", "1.0"
    steps = scope.metrics.add(name="steps", unit="{step}", description="Steps done")
    steps.sum.is_monotonic = True
    steps.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    attributes = key_values({"rank": 0, "ok": True, "name": "a", "loss": 0.5})
    steps.sum.data_points.add(as_int=7, attributes=attributes, start_time_unix_nano=NOON - 10**9, time_unix_nano=NOON)
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
    for number in (float("nan"), float("inf"), -0.0, 1e300):
        attributes = key_values({"number": number, "line": "a\nb"})
        scope.metrics.add(name="odd", unit="s").gauge.data_points.add(as_double=number, attributes=attributes)
    huge = scope.metrics.add(name="huge").exponential_histogram.data_points.add(scale=-(2**31))
    huge.positive.offset = 2**31 - 1
    huge.positive.bucket_counts.extend([1, 1])
    assert await shown(Batch(metrics=metrics, spans=traces, logs=logs), verbosity)


async def test_an_empty_batch_prints_nothing() -> None:
    assert await shown(Batch(MetricsData(), TracesData(), LogsData()), "normal") == ""


async def test_characters_that_the_terminal_does_not_support_are_escaped() -> None:
    written = io.BytesIO()
    metrics = MetricsData()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="t\x1b[2J", unit="Cel")
    metric.gauge.data_points.add(as_int=66, time_unix_nano=NOON)
    async with debug_exporter(io.TextIOWrapper(written, "ascii"), verbosity="normal") as exporter:
        await exporter.export(Batch(metrics=metrics))
        assert written.getvalue().splitlines()[1:] == [
            rb'"t\u001b[2J"      value',
            rb"                  66 \xb0C",
            b"",
        ]


@pytest.mark.parametrize(
    ("initial", "thereafter", "shown_of_ten"), [(2, 1, 10), (2, 4, 4), (3, 0, 3), (0, 5, 2), (0, 0, 0)]
)
async def test_sampling_shows_the_first_of_each_second_then_every_nth(
    initial: int, thereafter: int, shown_of_ten: int
) -> None:
    stream, clock = io.StringIO(), FakeClock()
    context = make_context("exporters", "debug", clock=clock)
    settings = {"sampling_initial": initial, "sampling_thereafter": thereafter}
    async with debug_exporter(stream, context, **settings) as exporter:
        for _ in range(2):
            for _ in range(10):
                await exporter.export(node())
            clock.advance(1)
    assert len(stream.getvalue().splitlines()) == 2 * shown_of_ten


async def test_after_the_reader_has_gone_batches_are_dropped_and_the_collector_continues() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    context = make_context("exporters", "debug")
    async with debug_exporter(stream, context) as exporter:
        await exporter.export(node())
        await exporter.export(one_span())
    assert stream.closed
    assert context.drop == Dropped(Counter(output_closed=9))
    assert context.health.problems == {"exporters::debug": "cannot write to stdout: Broken pipe"}


@pytest.mark.parametrize(("output", "others"), [("stdout", "err"), ("stderr", "out")])
async def test_output_goes_where_it_is_configured(capsys: pytest.CaptureFixture[str], output: str, others: str) -> None:
    config = DebugExporter.Config.model_validate({"output": output})
    async with DebugExporter(config, make_context("exporters", "debug")) as exporter:
        await exporter.export(node())
    captured = capsys.readouterr()
    assert getattr(captured, others) == ""
    assert getattr(captured, output.removeprefix("std")).startswith("Metrics {")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (6.1e-6, "s", "6.10 us"),
        (3e-10, "s", "0.3 ns"),
        (0.0, "s", "0 s"),
        (-0.0123, "s", "-12.3 ms"),
        (3600, "s", "3,600 s"),
        (0.9712, "1", "97.1 %"),
        (1, "1", "100 %"),
        (73420 * 2**20, "By", "71.7 GiB"),
        (12, "By", "12 B"),
        (2.5e9, "By/s", "2.33 GiB/s"),
        (412.3, "W", "412 W"),
        (1.98e9, "Hz", "1.98 GHz"),
        (66, "Cel", "66 °C"),
        (1234567, "{error}", "1,234,567"),
        (0.25, "", "0.25"),
        (12.5, "V", "12.5 V"),
        (float("nan"), "s", "nan"),
    ],
)
def test_values_have_a_suitable_unit_prefix(value: float, unit: str, text: str) -> None:
    assert readable(value, unit) == text


async def test_normal_omits_points_without_a_value() -> None:
    metrics = MetricsData()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="ended")
    metric.gauge.data_points.add(flags=1)
    assert await shown(Batch(metrics=metrics), "normal") == ""
