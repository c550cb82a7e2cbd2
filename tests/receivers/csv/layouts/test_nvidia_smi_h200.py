"""The cells that driver 580.159.04 prints for an H200 in `nvidia-smi -q`; the CSV has the same words and units.

The serial number and the UUID of the file are not those of the GPU.
"""

import re
from pathlib import Path

import pytest

from otel_zernel_libraries.gpu_names.nvidia_smi_cells import UNITS, is_missing
from tests.receivers.csv.layouts.test_nvidia_smi import points
from tests.receivers.csv.running import Receive

REPORT = Path(__file__).parent / "nvidia-smi-q-h200.txt"
CELSIUS, WATT, MIB = 1.0, 1.0, 2**20
"""By the path in the report: the field of `--query-gpu`, its unit in the header, and the expected series and value."""
CELLS: dict[str, tuple[str, str, str, float | None]] = {
    "Persistence Mode": ("persistence_mode", "", "zernel.gpu.persistence.enabled", 1),
    "MIG Mode/Current": ("mig.mode.current", "", "zernel.gpu.mig.enabled", 0),
    "GPU Recovery Action": ("gpu_recovery_action", "", "zernel.gpu.recovery_action", 0),
    "PCI/GPU Link Info/PCIe Generation/Max": ("pcie.link.gen.max", "", "zernel.gpu.pcie.link.generation.limit", 5),
    "PCI/GPU Link Info/PCIe Generation/Current": ("pcie.link.gen.current", "", "zernel.gpu.pcie.link.generation", 5),
    "Fan Speed": ("fan.speed", "%", "hw.fan.speed_ratio", None),
    "Performance State": ("pstate", "", "zernel.gpu.performance_state", 0),
    "Clocks Event Reasons/Idle": ("clocks_event_reasons.gpu_idle", "", "zernel.gpu.throttle.active idle", 0),
    "Clocks Event Reasons/HW Slowdown": (
        "clocks_event_reasons.hw_slowdown",
        "",
        "zernel.gpu.throttle.active hw_slowdown",
        0,
    ),
    "Clocks Event Reasons Counters/SW Power Capping": (
        "clocks_event_reasons_counters.sw_power_cap",
        "us",
        "zernel.gpu.throttle.time sw_power_cap",
        0,
    ),
    "FB Memory Usage/Total": ("memory.total", "MiB", "hw.gpu.memory.limit", 143771 * MIB),
    "FB Memory Usage/Reserved": ("memory.reserved", "MiB", "zernel.gpu.memory.reserved", 616 * MIB),
    "FB Memory Usage/Used": ("memory.used", "MiB", "hw.gpu.memory.usage", 0),
    "FB Memory Usage/Free": ("memory.free", "MiB", "zernel.gpu.memory.free", 143156 * MIB),
    "Compute Mode": ("compute_mode", "", "zernel.gpu.compute_mode default", 1),
    "Utilization/GPU": ("utilization.gpu", "%", "hw.gpu.utilization general", 0),
    "Utilization/Memory": ("utilization.memory", "%", "zernel.gpu.memory.bandwidth.utilization", 0),
    "Utilization/JPEG": ("utilization.jpeg", "%", "hw.gpu.utilization jpeg", 0),
    "Encoder Stats/Active Sessions": ("encoder.stats.sessionCount", "", "zernel.gpu.encoder.sessions", 0),
    "Encoder Stats/Average Latency": ("encoder.stats.averageLatency", "", "zernel.gpu.encoder.latency", 0),
    "ECC Mode/Current": ("ecc.mode.current", "", "zernel.gpu.ecc.enabled", 1),
    "ECC Errors/Volatile/DRAM Correctable": (
        "ecc.errors.corrected.volatile.dram",
        "",
        "zernel.gpu.ecc.errors corrected volatile dram",
        0,
    ),
    "Retired Pages/Single Bit ECC": (
        "retired_pages.single_bit_ecc.count",
        "",
        "zernel.gpu.memory.retired_pages corrected",
        None,
    ),
    "Retired Pages/Pending Page Blacklist": (
        "retired_pages.pending",
        "",
        "zernel.gpu.memory.retired_pages.pending",
        None,
    ),
    "Remapped Rows/Correctable Error": (
        "remapped_rows.correctable",
        "",
        "zernel.gpu.memory.remapped_rows corrected",
        0,
    ),
    "Remapped Rows/Pending": ("remapped_rows.pending", "", "zernel.gpu.memory.row_remap.pending", 0),
    "Remapped Rows/Remapping Failure Occurred": ("remapped_rows.failure", "", "zernel.gpu.memory.row_remap.failed", 0),
    "Remapped Rows/Bank Remap Availability Histogram/Max": (
        "remapped_rows.histogram.max",
        "",
        "zernel.gpu.memory.row_remap.banks max",
        3072,
    ),
    "Temperature/GPU Current Temp": ("temperature.gpu", "", "hw.temperature gpu", 42 * CELSIUS),
    "Temperature/GPU T.Limit Temp": ("temperature.gpu.tlimit", "", "zernel.gpu.temperature.margin", 45 * CELSIUS),
    "Temperature/Memory Current Temp": ("temperature.memory", "", "hw.temperature memory", 43 * CELSIUS),
    "GPU Power Readings/Average Power Draw": ("power.draw.average", "W", "hw.power", 125.30 * WATT),
    "GPU Power Readings/Instantaneous Power Draw": ("power.draw.instant", "W", "zernel.gpu.power.instant", 125.1),
    "GPU Power Readings/Default Power Limit": ("power.default_limit", "W", "zernel.gpu.power.limit.default", 700),
    "GPU Power Readings/Min Power Limit": ("power.min_limit", "W", "zernel.gpu.power.limit.min", 200),
    "Module Power Readings/Average Power Draw": ("module.power.draw.average", "W", "zernel.gpu.module.power", None),
    "Clocks/Graphics": ("clocks.current.graphics", "MHz", "zernel.gpu.clock graphics", 1980e6),
    "Clocks/Video": ("clocks.current.video", "MHz", "zernel.gpu.clock video", 1545e6),
    "Max Clocks/Memory": ("clocks.max.memory", "MHz", "zernel.gpu.clock.limit memory", 3201e6),
    "Applications Clocks/Graphics": (
        "clocks.applications.graphics",
        "MHz",
        "zernel.gpu.clock.application graphics",
        1980e6,
    ),
    "Fabric/State": ("fabric.state", "", "zernel.gpu.fabric.state completed", None),
}
IDENTITY = {"GPU UUID": "uuid", "Product Name": "name", "PCI/Bus Id": "pci.bus_id", "VBIOS Version": "vbios_version"}


def report() -> dict[str, str]:
    """The values of the report by their path. A level is indented by 4 spaces."""
    values: dict[str, str] = {}
    path: list[str] = []
    for line in REPORT.read_text().partition("GPU 00000000:00:06.0")[2].splitlines():
        name, colon, value = line.partition(" : ")
        depth = (len(line) - len(line.lstrip())) // 4 - 1
        path[max(depth, 0) :] = [name.strip()]
        if colon:
            values["/".join(path)] = value.strip()
    return values


@pytest.mark.parametrize("missing", ["[N/A]", "N/A"], ids=["csv", "report"])
async def test_the_cells_of_an_h200_become_their_metrics(receive: Receive, missing: str) -> None:
    values = report()
    header = [*IDENTITY.values(), *(f"{field} [{unit}]" if unit else field for field, unit, _, _ in CELLS.values())]
    cells = [values[path] for path in (*IDENTITY, *CELLS)]
    row = ", ".join(missing if cell == "N/A" else cell for cell in cells)
    run = await receive(f"timestamp, {', '.join(header)}\n2026/11/21 00:07:43.000, {row}\n")
    found = points(run)
    expected = {series: value for _, _, series, value in CELLS.values() if value is not None}
    assert {series: found.get(series) for series in expected} == pytest.approx(expected)
    absent = {series for _, _, series, value in CELLS.values() if value is None}
    assert not absent & set(found)
    assert run.dropped == {}


def test_every_unit_and_every_word_for_no_value_of_an_h200_is_known() -> None:
    missing = {"N/A", "Requested functionality has been deprecated"}
    assert all(map(is_missing, missing))
    quantities = (re.fullmatch(r"-?[\d.]+ (\S+)", value) for value in report().values())
    units = {quantity[1] for quantity in quantities if quantity}
    assert units == {"KB/s", "MiB", "%", "us", "bank(s)", "C", "W", "MHz"}
    assert units - set(UNITS) == {"KB/s"}  # the PCIe throughput, which --query-gpu does not have
