"""The output of the debug exporter."""

import io
import os
from collections import Counter

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch
from otel_zernel.testing import Dropped, FakeClock, make_context
from otel_zernel_exporters.debug import DebugExporter
from otel_zernel_exporters.debug.normal import readable
from tests.exporters.debug.showing import NOON, debug_exporter, log_records, node, one_span, shown
from tests.otlp import profiles


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


@pytest.mark.parametrize("verbosity", ["basic", "normal", "detailed"])
async def test_profiles_are_counted(verbosity: str) -> None:
    expected = 'Profiles {"resource profiles": 1, "sample records": 2}\n'
    assert await shown(Batch(profiles=profiles(1, 2)), verbosity) == expected
