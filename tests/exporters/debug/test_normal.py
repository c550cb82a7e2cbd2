"""The verbosity `normal` prints a table for each metric, and a line for each span and log record."""

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import key_values
from tests.exporters.debug.showing import NOON, log_records, node, one_span, shown
from tests.otlp import data, ended, exponential, gauge, histogram, logs, number, total


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
    points = (
        number(gpu * 1000, {"uuid": f"GPU-5fd4f087-86f3-7a43-{gpu}", "op": "all reduce"}, NOON) for gpu in (10, 9)
    )
    assert await shown(Batch(data(total("errors", *points, unit="{error}"))), "normal") == (
        '2023-11-15T12:00:00Z op="all reduce"\n'
        "errors                                value\n"
        "  uuid=GPU-5fd4f087-86f3-7a43-9       9,000\n"
        "  uuid=GPU-5fd4f087-86f3-7a43-10     10,000\n"
        "\n"
    )


async def test_normal_cuts_a_long_heading() -> None:
    resource = {f"attribute.{index}": "value" for index in range(20)}
    heading, *_ = (await shown(Batch(data(gauge("m", number(1)), resource=resource)), "normal")).splitlines()
    assert heading.endswith(" attribute.4=value …")


async def test_normal_shows_the_quantiles_of_histograms() -> None:
    explicit = histogram("a", [0.001, 0.002], [2, 2, 0], 0.002)
    coarse = exponential("b", 0, (0, [2, 0, 2]))
    coarse.exponential_histogram.data_points[0].min, coarse.exponential_histogram.data_points[0].max = 1, 8
    _, _, first, _, second, *_ = (await shown(Batch(data(explicit, coarse)), "normal")).splitlines()
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
    record = LogRecord(severity_text="a\nb", time_unix_nano=NOON, body=AnyValue(string_value="two\nlines \x1b[2J"))
    assert (await shown(Batch(logs=logs(record)), "normal")).splitlines()[1:] == [
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


async def test_normal_omits_points_without_a_value() -> None:
    assert await shown(Batch(data(gauge("ended", ended()))), "normal") == ""
