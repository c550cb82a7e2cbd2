"""The CSV that `nvidia-smi --query-gpu` prints: units, words, missing values, messages, and every field's metric."""

import re
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from otel_zernel.errors import CannotStart
from otel_zernel_libraries.gpu_names.nvidia_smi import FIELDS
from otel_zernel_receivers.csv.conversion import parse_block
from otel_zernel_receivers.csv.layouts.layout import find_columns
from otel_zernel_receivers.csv.layouts.nvidia_smi import NvidiaSmiLayout
from otel_zernel_receivers.csv.parsing.lines import LineBlock
from otel_zernel_receivers.csv.parsing.plain import parse_lines
from otel_zernel_receivers.csv.parsing.rows import Dialect
from otel_zernel_receivers.nvml.points.metrics import METRICS
from otel_zernel_receivers.nvml.readings.board import BOARD
from otel_zernel_receivers.nvml.readings.fields import FIELDS as NVML_FIELDS
from tests.otlp import rows_in
from tests.receivers.csv.parsing.test_parsing import lines_of, plain
from tests.receivers.csv.running import Receive, Run, attributes, receiver

HEADER = "timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], power.draw [W], pstate"
GPU = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50, NVIDIA H100 80GB HBM3"
AT = int(datetime(2026, 11, 22, 13, tzinfo=UTC).timestamp() * 10**9) + 123_000_000


def row(*cells: str, time: str = "2026/11/22 13:00:00.123") -> str:
    return ", ".join((time, "3", GPU, *cells))


def points(run: Run) -> dict[str, float]:
    """Values by metric, with the attributes of each point that are not the GPU's."""
    return {
        " ".join((row.metric.name, *(str(text) for name, text in row.attributes.items() if name != "hw.id"))): row.value
        for batch in run.downstream.batches
        for row in rows_in(batch.metrics)
    }


@pytest.mark.parametrize("units", [True, False], ids=["units", "nounits"])
async def test_values_with_and_without_units_become_the_same_metrics(receive: Receive, units: bool) -> None:
    cells = ("97 %", "40123 MiB", "612.34 W", "P0") if units else ("97", "40123", "612.34", "P0")
    run = await receive(f"{HEADER}\n{row(*cells)}\n")
    assert points(run) == {
        "hw.gpu.utilization general": 0.97,
        "hw.gpu.memory.usage": 40123 * 2**20,
        "hw.power": 612.34,
        "zernel.gpu.performance_state": 0.0,
    }
    assert {time for _, time, _ in run.points} == {AT}
    resource = run.downstream.batches[0].metrics.resource_metrics[0].resource
    assert attributes(resource) == {
        "hw.type": "gpu",
        "hw.vendor": "NVIDIA",
        "hw.id": "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
        "hw.model": "NVIDIA H100 80GB HBM3",
        "zernel.gpu.index": 3,
    }


@pytest.mark.parametrize(
    "message",
    [
        "Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error",
        *("GPU is lost", "GPU 00000000:3B:00.0 is lost", "GPU requires reset", "NVIDIA-SMI has failed because"),
    ],
)
async def test_messages_between_the_rows_are_told_from_rows_and_logged(
    receive: Receive, caplog: pytest.LogCaptureFixture, message: str
) -> None:
    run = await receive(f"{HEADER}\n{message}\n{HEADER}\n{row('10 %', '1 MiB', '1 W', 'P2')}\n")
    assert len(run.points) == 4
    assert run.dropped == {"message of nvidia-smi": 1}
    assert any(f"nvidia-smi reports: {message}" in text for text in caplog.messages)


async def test_a_file_without_header_needs_its_names(receive: Receive) -> None:
    text = row("97 %", "1 MiB", "1 W", "P0") + "\n"
    with pytest.raises(CannotStart, match="has no header: its first line is a row; set header to the names"):
        await receive(text)
    query = "timestamp,index,uuid,name,utilization.gpu,memory.used,power.draw,pstate"
    run = await receive(text, header=query)
    assert points(run)["hw.gpu.utilization general"] == 0.97


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
async def test_times_without_zone_are_in_the_configured_one(receive: Receive, zone: str) -> None:
    run = await receive(f"{HEADER}\n{row('97 %', '1 MiB', '1 W', 'P0')}\n", timezone=zone)
    there = datetime(2026, 11, 22, 13, 0, 0, 123_000, ZoneInfo(zone))
    assert run.points[0][1] == round(there.timestamp() * 1000) * 10**6


def test_an_unknown_zone_is_an_error() -> None:
    with pytest.raises(ValueError, match="this machine has no time zone 'Europe/Atlantis'"):
        receiver(files=["a.csv"], timezone="Europe/Atlantis")


def test_every_field_becomes_a_series_of_the_nvml_receiver() -> None:
    """The metric, its unit and type, and its attributes are those of the nvml receiver."""
    series = {
        (one.metric, frozenset(dict(one.attributes).items()))
        for one in (*chain.from_iterable(query.series for query in BOARD), *(field.series for field in NVML_FIELDS))
    }
    for field in FIELDS.values():
        measure = field.measure
        metric = METRICS[measure.descriptor.name]
        assert (metric.unit, metric.kind) == (measure.descriptor.unit, measure.descriptor.kind), field.column
        if metric.name not in ("zernel.gpu.ecc.errors", "hw.energy"):
            assert (metric.name, frozenset(measure.attributes.items())) in series, field.column


@pytest.mark.parametrize("column", sorted({field.column for field in FIELDS.values()}))
async def test_every_field_can_be_read(receive: Receive, column: str) -> None:
    words = {
        "pstate": "P8",
        "compute_mode": "Default",
        "fabric.state": "Completed",
        "gpu_recovery_action": "None",
        "clocks_event_reasons.active": "0x0000000000000005",
    }
    flags = "mode.current|persistence|pending|failure|clocks_event_reasons[.]"
    cell = words.get(column) or ("Enabled" if re.search(flags, column) else "7")
    run = await receive(f"timestamp, uuid, {column}\n2026/11/22 13:00:00.123, GPU-1, {cell}\n")
    names = {field.measure.descriptor.name for field in FIELDS.values() if field.column == column}
    assert {name for name, _, _ in run.points} == names
    assert run.dropped == {}


async def test_the_mask_of_reasons_becomes_one_series_for_each(receive: Receive) -> None:
    run = await receive("timestamp, uuid, clocks_throttle_reasons.active\n2026/11/22 13:00:00, GPU-1, 0x44\n")
    active = {name.split()[1] for name, value in points(run).items() if value}
    assert active == {"sw_power_cap", "hw_thermal_slowdown"}
    assert len(points(run)) == 8


def test_the_fast_and_the_plain_parser_agree() -> None:
    header = [cell.strip() for cell in HEADER.split(",")]
    plan = find_columns(NvidiaSmiLayout(), header, timed=True)
    cells = [("97 %", "40123 MiB", "612.34 W", "P0"), ("[N/A]", "1", "[Not Supported]", "P12")]
    lines = lines_of("".join(f"{row(*cell)}\n" for cell in cells * 50).encode())
    assert isinstance(lines, LineBlock)
    fast = parse_block(lines, plan, Dialect())
    slow, bad = parse_lines(lines, plan, Dialect())
    assert fast is not None
    assert not bad
    assert plain(fast) == plain(slow)


async def test_a_header_that_fits_no_layout_names_what_is_missing(receive: Receive) -> None:
    with pytest.raises(CannotStart, match=r"no column 'metric_name'.*\(layout dcgm\), .*\(layout nvidia_smi\)"):
        await receive("a,b\n1,2\n")


async def test_files_of_several_layouts_are_read_by_one_receiver(receive: Receive, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("timestamp, uuid, power.draw [W]\n2026/11/22 13:00:00, GPU-1, 300.00 W\n")
    (tmp_path / "b.csv").write_text("timestamp,gpu_id,hostname,power_draw\n2026-11-22 13:00:00,0,a,200\n")
    run = await receive(files=[str(tmp_path / "*.csv")])
    assert [value for _, _, value in run.points] == [300.0, 200.0]


@pytest.mark.parametrize(
    ("cell", "value"), [("640 bank(s)", 640.0), ("2 GiB", 2 * 2**30), ("1.5 KiB", 1536.0), ("100", 100 * 2**20)]
)
def test_units_other_than_the_usual_ones_are_converted(cell: str, value: float) -> None:
    column = "remapped_rows.histogram.max" if "bank" in cell else "memory.used"
    (field,) = (field for field in FIELDS.values() if field.column == column)
    assert field.read(cell) * field.measure.scale == value
