"""The CSV of `nvidia-smi --query-gpu=... --format=csv`: the meaning of its fields and cells.

Fields and units are those of `nvidia-smi --help-query-gpu`. Metrics are those that the nvml receiver reads directly.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from otel_zernel.otlp.points import Descriptor
from otel_zernel_libraries.gpu_names.dcgm import Measure
from otel_zernel_libraries.gpu_names.descriptions import DESCRIPTIONS
from otel_zernel_libraries.gpu_names.nvidia_smi_cells import (
    ACTION,
    FLAG,
    UNITS,
    bit_of_mask,
    is_state,
    performance_state,
    quantity,
)
from otel_zernel_libraries.training import semconv

TIMESTAMP = "timestamp"
TEXTS: Mapping[str, str] = {
    "index": semconv.GPU_INDEX,
    "uuid": "hw.id",
    "name": "hw.model",
    "serial": "hw.serial_number",
    "pci.bus_id": semconv.GPU_PCI_BUS_ID,
    "driver_version": "hw.driver_version",
    "vbios_version": "hw.firmware_version",
}
"""Fields with text, and the resource attributes that they become."""

_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_serial": "serial",
    "gpu_bus_id": "pci.bus_id",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "clocks.applications.gr": "clocks.applications.graphics",
    "clocks.applications.mem": "clocks.applications.memory",
    "retired_pages.sbe": "retired_pages.single_bit_ecc.count",
    "retired_pages.dbe": "retired_pages.double_bit.count",
}
_MONITOR = {
    "gpu": "index",
    "pwr": "power.draw",
    "gtemp": "temperature.gpu",
    "mtemp": "temperature.memory",
    "sm": "utilization.gpu",
    "mem": "utilization.memory",
    "enc": "utilization.encoder",
    "dec": "utilization.decoder",
    "jpg": "utilization.jpeg",
    "ofa": "utilization.ofa",
    "mclk": "clocks.current.memory",
    "pclk": "clocks.current.sm",
    "fb": "memory.used",
}
"""The columns of `nvidia-smi dmon`, and the same fields of `--query-gpu`."""
_UNIT = re.compile(r"\s*\[([^]]*)\]\s*$")


def of_monitor(column: str) -> str:
    """The field of a column of `nvidia-smi dmon`, whose header begins with `#`."""
    name = column.strip(" #")
    return _MONITOR.get(name, name)


def unit_of(column: str) -> str:
    """The unit that a column's header has in brackets; empty if it has none."""
    match = _UNIT.search(column)
    return match[1].strip() if match else ""


def canonical(column: str) -> str:
    """The field of a column: without its unit, and with the name that nvidia-smi prints today."""
    name = _UNIT.sub("", column.strip())
    if name.startswith("clocks_throttle_reasons"):
        name = name.replace("clocks_throttle_reasons", "clocks_event_reasons", 1)
    return _ALIASES.get(name, name)


@dataclass(frozen=True, slots=True)
class Field:
    """A number in a cell, and the metric that it becomes. Several fields may read one column."""

    column: str
    measure: Measure
    read: Callable[[str], float]
    """Reads a stripped cell. Returns NaN if it has no value; raises `ValueError` if it is not a value."""


_Kind = Literal["gauge", "sum", "up_down"]
_CLOCKS = {
    "current": semconv.GPU_CLOCK,
    "max": semconv.GPU_CLOCK_LIMIT,
    "applications": semconv.GPU_CLOCK_APPLICATION,
}


def _field(
    column: str,
    metric: str,
    unit: str,
    printed: str = "",
    kind: _Kind = "gauge",
    read: Callable[[str], float] | None = None,
    **attributes: str,
) -> Field:
    """`unit` is the metric's, `printed` is nvidia-smi's."""
    named = {_ATTRIBUTES[key]: value for key, value in attributes.items()}
    scale = UNITS[printed][0] if printed else 1.0
    return Field(
        column,
        Measure(Descriptor(metric, unit, kind, DESCRIPTIONS.get(metric, "")), scale, named),
        read or quantity(printed, unit),
    )


_ATTRIBUTES = {
    "task": "hw.gpu.task",
    "location": "hw.sensor_location",
    "domain": semconv.GPU_CLOCK_DOMAIN,
    "error": "error.type",
    "reason": semconv.GPU_THROTTLE_REASON,
    "counter": semconv.GPU_ECC_COUNTER,
    "where": semconv.GPU_ECC_LOCATION,
    "available": semconv.GPU_ROW_REMAP_AVAILABILITY,
    "mode": semconv.GPU_COMPUTE_MODE,
    "state": semconv.GPU_FABRIC_STATE,
}
_TASKS = {"gpu": "general", "encoder": "encoder", "decoder": "decoder", "jpeg": "jpeg", "ofa": "ofa"}
_REASONS = {
    "gpu_idle": (0x1, "idle"),
    "applications_clocks_setting": (0x2, "application_clocks"),
    "sw_power_cap": (0x4, "sw_power_cap"),
    "hw_slowdown": (0x8, "hw_slowdown"),
    "sync_boost": (0x10, "sync_boost"),
    "sw_thermal_slowdown": (0x20, "sw_thermal_slowdown"),
    "hw_thermal_slowdown": (0x40, "hw_thermal_slowdown"),
    "hw_power_brake_slowdown": (0x80, "hw_power_brake"),
}
"""By field: the bit of `clocks_event_reasons.active` (nvmlClocksEventReason… in nvml.h), and the attribute."""
THROTTLE_BITS: Mapping[str, int] = {reason: bit for bit, reason in _REASONS.values()}
"""By the attribute `zernel.gpu.throttle.reason`: the bit in the mask of all reasons."""
_TIMED_REASONS = (
    "sw_power_cap",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
)
_ECC_LOCATIONS = (
    "device_memory",
    "dram",
    "register_file",
    "l1_cache",
    "l2_cache",
    "texture_memory",
    "cbu",
    "sram",
)
_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
_FABRIC_STATES = {"not started": "not_started", "in progress": "in_progress", "completed": "completed"}
_ECC_TOTALS = {"volatile": "hw.errors", "aggregate": semconv.GPU_ECC_LIFETIME_ERRORS}


def _ecc(error: str, counter: str) -> list[Field]:
    column = f"ecc.errors.{error}.{counter}"
    total = _field(f"{column}.total", _ECC_TOTALS[counter], "{error}", kind="sum", error=error)
    by_location = (
        _field(
            f"{column}.{where}",
            semconv.GPU_ECC_ERRORS,
            "{error}",
            kind="sum",
            error=error,
            counter=counter,
            where=where,
        )
        for where in _ECC_LOCATIONS
    )
    return [total, *by_location]


def _reason(field: str, bit: int, reason: str) -> list[Field]:
    metric = semconv.GPU_THROTTLE_ACTIVE
    return [
        _field(f"clocks_event_reasons.{field}", metric, "", read=FLAG, reason=reason),
        _field("clocks_event_reasons.active", metric, "", read=bit_of_mask(bit), reason=reason),
    ]


_ALL = [
    *(_field(f"utilization.{unit}", "hw.gpu.utilization", "1", "%", task=task) for unit, task in _TASKS.items()),
    _field("utilization.memory", semconv.GPU_MEMORY_BANDWIDTH_UTILIZATION, "1", "%"),
    _field("memory.used", "hw.gpu.memory.usage", "By", "MiB", "up_down"),
    _field("memory.total", "hw.gpu.memory.limit", "By", "MiB", "up_down"),
    _field("memory.free", semconv.GPU_MEMORY_FREE, "By", "MiB"),
    _field("memory.reserved", semconv.GPU_MEMORY_RESERVED, "By", "MiB"),
    _field("temperature.gpu", "hw.temperature", "Cel", location="gpu"),
    _field("temperature.memory", "hw.temperature", "Cel", location="memory"),
    _field("temperature.gpu.tlimit", semconv.GPU_TEMPERATURE_MARGIN, "Cel"),
    _field("power.draw", "hw.power", "W", "W"),
    _field("power.draw.average", "hw.power", "W", "W"),
    _field("power.draw.instant", semconv.GPU_POWER_INSTANT, "W", "W"),
    _field("power.limit", semconv.GPU_POWER_LIMIT, "W", "W"),
    _field("enforced.power.limit", semconv.GPU_POWER_LIMIT_ENFORCED, "W", "W"),
    _field("power.default_limit", semconv.GPU_POWER_LIMIT_DEFAULT, "W", "W"),
    _field("power.min_limit", semconv.GPU_POWER_LIMIT_MIN, "W", "W"),
    _field("power.max_limit", semconv.GPU_POWER_LIMIT_MAX, "W", "W"),
    _field("module.power.draw.average", semconv.GPU_MODULE_POWER, "W", "W"),
    *(
        _field(f"clocks.{which}.{domain}", name, "Hz", "MHz", domain=domain)
        for which, name in _CLOCKS.items()
        for domain in ("graphics", "sm", "memory", "video")
        if which != "applications" or domain in ("graphics", "memory")
    ),
    _field("fan.speed", "hw.fan.speed_ratio", "1", "%"),
    _field("pstate", semconv.GPU_PERFORMANCE_STATE, "", read=performance_state),
    *(row for field, (bit, reason) in _REASONS.items() for row in _reason(field, bit, reason)),
    *(
        _field(
            f"clocks_event_reasons_counters.{reason}",
            semconv.GPU_THROTTLE_TIME,
            "s",
            "us",
            "sum",
            reason=_REASONS[reason][1],
        )
        for reason in _TIMED_REASONS
    ),
    _field("pcie.link.gen.current", semconv.GPU_PCIE_LINK_GENERATION, ""),
    _field("pcie.link.gen.gpucurrent", semconv.GPU_PCIE_LINK_GENERATION, ""),
    _field("pcie.link.gen.max", semconv.GPU_PCIE_LINK_GENERATION_LIMIT, ""),
    _field("pcie.link.width.current", semconv.GPU_PCIE_LINK_WIDTH, "{lane}"),
    _field("pcie.link.width.max", semconv.GPU_PCIE_LINK_WIDTH_LIMIT, "{lane}"),
    _field("ecc.mode.current", semconv.GPU_ECC_ENABLED, "", read=FLAG),
    *(row for error in ("corrected", "uncorrected") for counter in _ECC_TOTALS for row in _ecc(error, counter)),
    _field(
        "retired_pages.single_bit_ecc.count",
        _PAGES := semconv.GPU_MEMORY_RETIRED_PAGES,
        "{page}",
        kind="sum",
        error="corrected",
    ),
    _field("retired_pages.double_bit.count", _PAGES, "{page}", kind="sum", error="uncorrected"),
    _field("retired_pages.pending", semconv.GPU_MEMORY_RETIRED_PAGES_PENDING, "", read=FLAG),
    _field(
        "remapped_rows.correctable", _ROWS := semconv.GPU_MEMORY_REMAPPED_ROWS, "{row}", kind="sum", error="corrected"
    ),
    _field("remapped_rows.uncorrectable", _ROWS, "{row}", kind="sum", error="uncorrected"),
    _field("remapped_rows.pending", semconv.GPU_MEMORY_ROW_REMAP_PENDING, "", read=FLAG),
    _field("remapped_rows.failure", semconv.GPU_MEMORY_ROW_REMAP_FAILED, "", read=FLAG),
    *(
        _field(
            f"remapped_rows.histogram.{left}",
            semconv.GPU_MEMORY_ROW_REMAP_BANKS,
            "{bank}",
            "",
            "up_down",
            available=left,
        )
        for left in ("max", "high", "partial", "low", "none")
    ),
    _field("mig.mode.current", semconv.GPU_MIG_ENABLED, "", read=FLAG),
    _field("persistence_mode", semconv.GPU_PERSISTENCE_ENABLED, "", read=FLAG),
    *(
        _field("compute_mode", semconv.GPU_COMPUTE_MODE, "", read=is_state(mode, _COMPUTE_MODES), mode=mode)
        for mode in _COMPUTE_MODES
    ),
    *(
        _field("fabric.state", semconv.GPU_FABRIC_STATE, "", read=is_state(word, tuple(_FABRIC_STATES)), state=state)
        for word, state in _FABRIC_STATES.items()
    ),
    _field("gpu_recovery_action", semconv.GPU_RECOVERY_ACTION, "", read=ACTION),
    _field("encoder.stats.sessionCount", semconv.GPU_ENCODER_SESSIONS, "{session}"),
    _field("encoder.stats.averageFps", semconv.GPU_ENCODER_FRAME_RATE, "{frame}/s"),
    _field("encoder.stats.averageLatency", semconv.GPU_ENCODER_LATENCY, "s", "us"),
]


def _key(field: Field) -> str:
    """The column, and the attributes if several fields read it."""
    return f"{field.column}#{','.join(map(str, field.measure.attributes.values()))}"


FIELDS: Mapping[str, Field] = {_key(field): field for field in _ALL}
"""Fields by a name of their own. If two fields become the same series, the first one that a file has is used."""
