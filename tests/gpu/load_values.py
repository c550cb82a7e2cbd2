"""The values of the nvml receiver under a load, and the values that they must have."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from otel_zernel.batch import Batch, points
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_receivers.nvml.gpus.identity import OF_POINTS
from tests.otlp import metrics_in

HOPPER = [9, 0]
PER_CLOCK = {
    "bf16 products": ("tensor", 4096.0),
    "fp64 products": ("tensor", 256.0),
    "fp32 products": ("fp32", 256.0),
    "fp32 polynomial": ("fp32", 256.0),
    "fp64 polynomial": ("fp64", 128.0),
}
"""The unit that a load keeps busy, and the unit's floating-point operations per clock and multiprocessor.

NVIDIA H100 Tensor Core GPU Architecture, whitepaper of 2022, table of peak rates: SXM5, 132 multiprocessors.
"""
PCIE = {"copies to the GPU": "receive", "copies from the GPU": "transmit"}
HEADERS = 1.15
"""Bytes on PCIe with headers, at most, relative to the copied bytes."""
ENGINE, PCIE_RATE, OCCUPANCY = "zernel.gpu.engine.active", "zernel.gpu.pcie.throughput", "zernel.gpu.sm.occupancy"
MIB = 2.0**20
DMON = {
    "gract": (f"{ENGINE} graphics", 0.01),
    "smutil": (f"{ENGINE} sm", 0.01),
    "smocc": (OCCUPANCY, 0.01),
    "intutil": (f"{ENGINE} integer", 0.01),
    "mmaact": (f"{ENGINE} tensor", 0.01),
    "dram": (f"{ENGINE} dram", 0.01),
    "fp64": (f"{ENGINE} fp64", 0.01),
    "fp32": (f"{ENGINE} fp32", 0.01),
    "fp16": (f"{ENGINE} fp16", 0.01),
    "pcitx": (f"{PCIE_RATE} profiler transmit", MIB),
    "pcirx": (f"{PCIE_RATE} profiler receive", MIB),
}
"""The series of each column of `nvidia-smi dmon --gpm-metrics`, and the unit of the column."""


@dataclass(frozen=True, slots=True)
class Row:
    """One value of a load, and its expected value."""

    load: str
    name: str
    expected: float
    received: float | None
    agree: bool


@dataclass(frozen=True, slots=True)
class LoadResult:
    """A load, and the scrapes at its beginning and `seconds` later."""

    load: str
    did: Mapping[str, Any]
    """The answer of `loads.py`."""
    before: Mapping[str, float]
    after: Mapping[str, float]
    seconds: float
    pid: int
    bus_width: int
    """Bits between the GPU and its memory."""

    @property
    def rate(self) -> float:
        """Operations or bytes per second."""
        return float(self.did["amount"] / self.did["seconds"])

    def near(self, name: str, expected: float, tolerance: float) -> Row:
        """The series `name` in the second scrape, expected within `tolerance`."""
        received = self.after.get(name)
        return Row(self.load, name, expected, received, received is not None and abs(received - expected) <= tolerance)


def scraped(batch: Batch) -> dict[str, float]:
    """The values by metric and attributes, such as `zernel.gpu.engine.active tensor`; of a histogram, sum and count.

    Points that end a series have no value.
    """
    found: dict[str, float] = {}
    for metric in metrics_in(batch.metrics):
        for point in points(metric):
            if has_no_value(point):
                continue
            about = {attribute.key: attribute.value for attribute in point.attributes if attribute.key not in OF_POINTS}
            words = (
                str(getattr(about[key], str(about[key].WhichOneof("value")))) for key in sorted(about, reverse=True)
            )
            name = " ".join([metric.name, *words])
            if metric.HasField("histogram"):
                found |= {f"{name} sum": point.sum, f"{name} count": float(point.count)}
            else:
                found[name] = point.as_double
    return found


def expected_of_load(result: LoadResult) -> Iterator[Row]:
    """The values that follow from the amount that a load did."""
    busy = "idle" not in result.load
    on_sms = busy and result.load not in PCIE
    yield _of_process(result, busy=busy)
    yield _power(result)
    if not on_sms:
        yield result.near(f"{ENGINE} sm", 0.0, 0.01)
        yield result.near(f"{ENGINE} tensor", 0.0, 0.01)
    else:
        yield result.near(f"{ENGINE} graphics", 1.0, 0.12)
    if result.load in PCIE:
        name = f"{PCIE_RATE} profiler {PCIE[result.load]}"
        middle = result.rate * (1 + HEADERS) / 2
        yield result.near(name, middle, middle - result.rate)
    if result.load == "copies in the GPU":
        peak = 2 * result.after["zernel.gpu.clock memory"] * result.bus_width / 8
        yield result.near(f"{ENGINE} dram", 2 * result.rate / peak, 0.03)
    if result.load in PER_CLOCK and result.did["capability"] == HOPPER:
        yield _unit(result)


def _of_process(result: LoadResult, *, busy: bool) -> Row:
    metric = "zernel.gpu.process.utilization sm"
    name = next((one for one in result.after if one.startswith(f"{metric} {result.pid} ")), metric)
    row = result.near(name, 1.0 if busy else 0.0, 0.12 if busy else 0.0)
    return Row(row.load, f"{metric} of the process", row.expected, row.received, row.agree)


def _power(result: LoadResult) -> Row:
    """The mean power by the energy counter must be that of the power samples."""
    watts = (result.after["hw.energy"] - result.before["hw.energy"]) / result.seconds
    samples = "zernel.gpu.power.distribution"
    expected = result.after[f"{samples} sum"] / result.after[f"{samples} count"]
    return Row(result.load, "hw.energy per second, W", expected, watts, abs(watts - expected) <= 0.05 * expected)


def _unit(result: LoadResult) -> Row:
    unit, per_clock = PER_CLOCK[result.load]
    clocks = [scrape["zernel.gpu.clock sm"] for scrape in (result.before, result.after)]
    peak = result.did["multiprocessors"] * per_clock * sum(clocks) / len(clocks)
    return result.near(f"{ENGINE} {unit}", result.rate / peak, 0.1)  # the clock changes during the load


def expected_of_dmon(result: LoadResult, printed: str) -> Iterator[Row]:
    """The last line of `nvidia-smi dmon`, which covers one second of the load."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    columns = next((line[1:] for line in lines if line[:2] == ["#", "gpu"]), [])
    values = dict(zip(columns, lines[-1], strict=True)) if lines else {}
    for column, (name, unit) in DMON.items():
        if values.get(column, "-") != "-":
            expected = float(values[column]) * unit
            tolerance = 0.03 if unit < 1 else 4 * MIB + 0.1 * expected
            row = result.near(name, expected, tolerance)
            yield Row(row.load, f"{name} (dmon)", row.expected, row.received, row.agree)


def table(rows: Iterable[Row]) -> Iterator[str]:
    """A line per value, differences first."""
    for row in sorted(rows, key=lambda row: row.agree):
        received = "-" if row.received is None else f"{row.received:.4g}"
        yield f"{'ok     ' if row.agree else 'DIFFERS'} {row.load}: {row.name}: {row.expected:.4g} | {received}"
