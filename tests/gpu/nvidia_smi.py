"""Compares the values of `nvidia-smi -q -x` with those of the nvml receiver."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from otel_zernel.batch import Batch, points
from otel_zernel_receivers.nvml.gpus.identity import OF_POINTS

Series = tuple[str, frozenset[tuple[str, str]]]
"""A metric's name and a point's attributes as text, without those that name the GPU."""

_UNITS = {"MiB": 2.0**20, "%": 0.01, "MHz": 1e6, "KB/s": 1e3, "us": 1e-6} | dict.fromkeys(
    ("", "C", "W", "x", "bank(s)"), 1.0
)
_WORDS = dict.fromkeys(("Enabled", "Yes", "Active", "Reset"), 1.0) | dict.fromkeys(
    ("Disabled", "No", "Not Active", "None"), 0.0
)
_NUMBER = re.compile(r"P?(-?[\d.]+) ?([A-Za-z%/()]*)")


@dataclass(frozen=True, slots=True)
class Line:
    """A series, and the elements of nvidia-smi's XML whose sum it must equal."""

    series: Series
    paths: tuple[str, ...]
    tolerance: float = 0.0
    """The allowed difference, in the metric's unit: nvidia-smi rounds."""
    share: float = 0.0
    """The allowed difference as a fraction of the value, for values that change quickly."""


def _line(metric: str, *paths: str, tolerance: float = 0.0, share: float = 0.0, **attributes: str) -> Line:
    named = {_ATTRIBUTES[key]: value for key, value in attributes.items()}
    return Line((metric, frozenset(named.items())), paths, tolerance, share)


_ATTRIBUTES = {
    "task": "hw.gpu.task",
    "location": "hw.sensor_location",
    "limit": "hw.limit_type",
    "domain": "zernel.gpu.clock.domain",
    "reason": "zernel.gpu.throttle.reason",
    "error": "error.type",
    "counter": "zernel.gpu.ecc.counter",
    "place": "zernel.gpu.ecc.location",
    "left": "zernel.gpu.row_remap.availability",
    "unit": "zernel.gpu.repair.unit",
    "source": "zernel.gpu.counter.source",
    "direction": "network.io.direction",
}
_MIB = 2.0**20
_REASONS = {
    "idle": "gpu_idle",
    "application_clocks": "applications_clocks_setting",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake": "hw_power_brake_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "display_clocks": "display_clocks_setting",
}
_THROTTLED = {
    "sw_power_cap": "sw_power_cap",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_therm_slowdown",
    "hw_thermal_slowdown": "hw_therm_slowdown",
    "hw_power_brake": "hw_power_brake",
}
_TASKS = {"general": "gpu", "encoder": "encoder", "decoder": "decoder", "jpeg": "jpeg", "ofa": "ofa"}
_DOMAINS = {"graphics": "graphics", "sm": "sm", "memory": "mem", "video": "video"}
_ECC = {
    ("sram", "corrected"): ("sram_correctable",),
    ("sram", "uncorrected"): ("sram_uncorrectable_parity", "sram_uncorrectable_secded"),
    ("dram", "corrected"): ("dram_correctable",),
    ("dram", "uncorrected"): ("dram_uncorrectable",),
}
_MARGIN = "zernel.gpu.temperature.margin.limit"


def _lines() -> Iterator[Line]:
    for task, name in _TASKS.items():
        yield _line("hw.gpu.utilization", f"utilization/{name}_util", tolerance=0.2, task=task)
    yield _line("zernel.gpu.memory.bandwidth.utilization", "utilization/memory_util", tolerance=0.2)
    for metric, path in (
        ("hw.gpu.memory.limit", "fb_memory_usage/total"),
        ("hw.gpu.memory.usage", "fb_memory_usage/used"),
        ("zernel.gpu.memory.free", "fb_memory_usage/free"),
        ("zernel.gpu.memory.reserved", "fb_memory_usage/reserved"),
        ("zernel.gpu.memory.bar1.limit", "bar1_memory_usage/total"),
        ("zernel.gpu.memory.bar1.usage", "bar1_memory_usage/used"),
    ):
        yield _line(metric, path, tolerance=_MIB)
    yield _line("hw.temperature", "temperature/gpu_temp", tolerance=2, location="gpu")
    yield _line("hw.temperature", "temperature/memory_temp", tolerance=2, location="memory")
    yield _line("zernel.gpu.temperature.margin", "temperature/gpu_temp_tlimit", tolerance=2)
    yield _line(_MARGIN, "temperature/gpu_temp_max_tlimit_threshold", location="gpu", limit="high.critical")
    yield _line(_MARGIN, "temperature/gpu_temp_slow_tlimit_threshold", location="gpu", limit="throttled")
    yield _line(_MARGIN, "temperature/gpu_temp_max_gpu_tlimit_threshold", location="gpu", limit="high.degraded")
    yield _line(_MARGIN, "temperature/gpu_temp_max_mem_tlimit_threshold", location="memory", limit="high.degraded")
    power = "gpu_power_readings"
    yield _line("hw.power", f"{power}/average_power_draw", tolerance=0.01, share=0.1)
    yield _line("zernel.gpu.power.instant", f"{power}/instant_power_draw", tolerance=0.01, share=0.1)
    yield _line("zernel.gpu.memory.power", "gpu_memory_power_readings/average_power_draw", tolerance=0.01, share=0.1)
    yield _line("zernel.gpu.power.limit", f"{power}/requested_power_limit")
    yield _line("zernel.gpu.power.limit.enforced", f"{power}/current_power_limit")
    for which in ("default", "min", "max"):
        yield _line(f"zernel.gpu.power.limit.{which}", f"{power}/{which}_power_limit")
    for domain, name in _DOMAINS.items():
        yield _line("zernel.gpu.clock", f"clocks/{name}_clock", share=0.05, domain=domain)
        yield _line("zernel.gpu.clock.limit", f"max_clocks/{name}_clock", domain=domain)
    yield _line("zernel.gpu.clock.application", "applications_clocks/graphics_clock", domain="graphics")
    yield _line("zernel.gpu.clock.application", "applications_clocks/mem_clock", domain="memory")
    yield _line("zernel.gpu.performance_state", "performance_state")
    for reason, name in _REASONS.items():
        yield _line("zernel.gpu.throttle.active", f"clocks_event_reasons/clocks_event_reason_{name}", reason=reason)
    for reason, name in _THROTTLED.items():
        path = f"clocks_event_reasons_counters/clocks_event_reasons_counters_{name}"
        yield _line("zernel.gpu.throttle.time", path, tolerance=1e-6, share=0.05, reason=reason)
    for counter in ("volatile", "aggregate"):
        for (place, error), names in _ECC.items():
            paths = [f"ecc_errors/{counter}/{name}" for name in names]
            yield _line("zernel.gpu.ecc.errors", *paths, error=error, counter=counter, place=place)
        for error in ("corrected", "uncorrected"):
            paths = [
                f"ecc_errors/{counter}/{name}" for (_, which), names in _ECC.items() if which == error for name in names
            ]
            metric = "hw.errors" if counter == "volatile" else "zernel.gpu.ecc.lifetime_errors"
            yield _line(metric, *paths, error=error)
    for source in ("l2", "sm", "pcie", "microcontroller", "other"):
        path = f"ecc_errors/aggregate_uncorrectable_sram_sources/sram_{source}"
        yield _line("zernel.gpu.ecc.sram.errors", path, place=source)
    yield _line("zernel.gpu.repair.pending", "ecc_errors/channel_repair_pending", unit="channel")
    yield _line("zernel.gpu.repair.pending", "ecc_errors/tpc_repair_pending", unit="tpc")
    for error, kind in (("corrected", "multiple_single_bit"), ("uncorrected", "double_bit")):
        path = f"retired_pages/{kind}_retirement/retired_count"
        yield _line("zernel.gpu.memory.retired_pages", path, error=error)
    yield _line("zernel.gpu.memory.retired_pages.pending", "retired_pages/pending_retirement")
    yield _line("zernel.gpu.ecc.enabled", "ecc_mode/current_ecc")
    yield _line("zernel.gpu.ecc.sram.threshold_exceeded", "ecc_errors/aggregate/sram_threshold_exceeded")
    rows = "remapped_rows"
    yield _line("zernel.gpu.memory.remapped_rows", f"{rows}/remapped_row_corr", error="corrected")
    yield _line("zernel.gpu.memory.remapped_rows", f"{rows}/remapped_row_unc", error="uncorrected")
    yield _line("zernel.gpu.memory.row_remap.pending", f"{rows}/remapped_row_pending")
    yield _line("zernel.gpu.memory.row_remap.failed", f"{rows}/remapped_row_failure")
    for left in ("max", "high", "partial", "low", "none"):
        path = f"{rows}/row_remapper_histogram/row_remapper_histogram_{left}"
        yield _line("zernel.gpu.memory.row_remap.banks", path, left=left)
    yield _line("zernel.gpu.recovery_action", "gpu_recovery_action")
    for direction, name in (("transmit", "tx"), ("receive", "rx")):
        path = f"pci/{name}_util"
        yield _line("zernel.gpu.pcie.throughput", path, share=1.0, source="driver", direction=direction)
    yield _line("zernel.gpu.pcie.replays", "pci/replay_counter")
    link = "pci/pci_gpu_link_info"
    yield _line("zernel.gpu.pcie.link.generation", f"{link}/pcie_gen/current_link_gen")
    yield _line("zernel.gpu.pcie.link.generation.limit", f"{link}/pcie_gen/max_link_gen")
    yield _line("zernel.gpu.pcie.link.width", f"{link}/link_widths/current_link_width")
    yield _line("zernel.gpu.pcie.link.width.limit", f"{link}/link_widths/max_link_width")
    yield _line("hw.fan.speed_ratio", "fan_speed", tolerance=0.05)
    yield _line("zernel.gpu.mig.enabled", "mig_mode/current_mig")
    yield _line("zernel.gpu.persistence.enabled", "persistence_mode")
    for prefix, path in (("encoder", "encoder_stats"), ("frame_capture", "fbc_stats")):
        yield _line(f"zernel.gpu.{prefix}.sessions", f"{path}/session_count", tolerance=1)
        yield _line(f"zernel.gpu.{prefix}.frame_rate", f"{path}/average_fps", share=0.5)
    yield _line("hw.temperature.limit", "temperature/gpu_target_temperature", location="gpu", limit="target")
    yield _line("zernel.gpu.module.power", "module_power_readings/average_power_draw", tolerance=0.01, share=0.1)


LINES = tuple(_lines())
IDENTITY = {
    "hw.model": "product_name",
    "hw.serial_number": "serial",
    "hw.id": "uuid",
    "hw.firmware_version": "vbios_version",
    "zernel.gpu.architecture": "product_architecture",
    "zernel.gpu.board_part_number": "board_part_number",
    "zernel.gpu.pci.bus_id": "pci/pci_bus_id",
    "zernel.gpu.device": "minor_number",
}
"""Resource attributes and their elements in nvidia-smi's XML."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One value of nvidia-smi and of the receiver; None if one of them does not have it."""

    gpu: str
    name: str
    expected: float | str | None
    """Of nvidia-smi."""
    received: float | str | None
    """Of the receiver."""
    agree: bool


def compare(xml: str, scrapes: Iterable[Batch]) -> Iterator[Comparison]:
    """A comparison for every value that nvidia-smi or a scrape has. It is enough if one of the scrapes agrees."""
    scraped = [_scraped_values(batch) for batch in scrapes]
    for gpu in ET.fromstring(xml).iter("gpu"):
        uuid = gpu.findtext("uuid", "")
        of_gpu = [values.get(uuid, ({}, {})) for values in scraped]
        yield from _identity(gpu, uuid, of_gpu[-1][0])
        for line in LINES:
            expected = _expected(gpu, line.paths)
            received = [values[line.series] for _, values in of_gpu if line.series in values]
            if expected is not None or received:
                agree = expected is not None and any(_agree(expected, value, line) for value in received)
                yield Comparison(uuid, _name(line.series), expected, received[-1] if received else None, agree)


def _identity(gpu: ET.Element, uuid: str, resource: Mapping[str, str]) -> Iterator[Comparison]:
    for attribute, path in IDENTITY.items():
        expected, received = _text(gpu, path), resource.get(attribute)
        if expected is not None and attribute == "zernel.gpu.device":
            expected = f"nvidia{expected}"
        if expected is not None or received is not None:
            yield Comparison(uuid, attribute, expected, received, expected == received)


def _agree(expected: float, received: float, line: Line) -> bool:
    return abs(expected - received) <= line.tolerance + line.share * max(abs(expected), abs(received)) + 1e-9


def _expected(gpu: ET.Element, paths: Iterable[str]) -> float | None:
    numbers = [_number(_text(gpu, path)) for path in paths]
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _text(gpu: ET.Element, path: str) -> str | None:
    text = (gpu.findtext(path) or "N/A").strip()
    return None if text in ("N/A", "[N/A]", "Unknown Error", "") else text


def _number(text: str | None) -> float | None:
    if text is None or text in _WORDS:
        return _WORDS.get(text or "")
    match = _NUMBER.fullmatch(text)
    return float(match[1]) * _UNITS[match[2]] if match and match[2] in _UNITS else None


def _name(series: Series) -> str:
    attributes = ", ".join(value for _, value in sorted(series[1]))
    return f"{series[0]} {{{attributes}}}" if attributes else series[0]


def _scraped_values(batch: Batch) -> dict[str, tuple[dict[str, str], dict[Series, float]]]:
    """Resource attributes and values of each GPU, by uuid."""
    found: dict[str, tuple[dict[str, str], dict[Series, float]]] = {}
    for of_gpu in batch.metrics.resource_metrics:
        resource = {attribute.key: str(_plain(attribute.value)) for attribute in of_gpu.resource.attributes}
        values = found.setdefault(resource["hw.id"], (resource, {}))[1]
        for scope in of_gpu.scope_metrics:
            for metric in scope.metrics:
                if not metric.HasField("histogram"):
                    values |= {_series(metric.name, point): point.as_double for point in points(metric)}
    return found


def _series(name: str, point: object) -> Series:
    attributes = point.attributes  # type: ignore[attr-defined]  # a number point
    return name, frozenset(
        (attribute.key, str(_plain(attribute.value))) for attribute in attributes if attribute.key not in OF_POINTS
    )


def _plain(value: object) -> object:
    return getattr(value, value.WhichOneof("value"))  # type: ignore[attr-defined]  # an AnyValue
