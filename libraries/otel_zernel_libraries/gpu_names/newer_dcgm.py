"""The names of fields and labels that DCGM 4.6 and 4.7 introduce, and their meaning.

Names and units are from DCGM's dcgm_fields.h and its reference of fields, and from dcgm-exporter's release notes.
"""

from collections.abc import Mapping
from dataclasses import replace

from otel_zernel.otlp.points import Descriptor
from otel_zernel_libraries.gpu_names.dcgm import FIELDS, Measure
from otel_zernel_libraries.gpu_names.descriptions import DESCRIPTIONS
from otel_zernel_libraries.training import semconv

NEWER_LABELS = {"hostname": "Hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION": "DCGM_FI_DRIVER_VERSION"}
"""The labels that dcgm-exporter 4.8.3 (`hostname`) and 4.9.0 have renamed, and their names before."""

RENAMED_FIELDS: Mapping[str, str] = {
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS": "DCGM_FI_DEV_GPU_TEMP_LIMIT",
    "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS": "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_GPU_TEMP_SHUTDOWN_CELSIUS": "DCGM_FI_DEV_SHUTDOWN_TEMP",
    "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS": "DCGM_FI_DEV_SLOWDOWN_TEMP",
    "DCGM_FI_DEV_GPU_MAX_OP_TEMP_CELSIUS": "DCGM_FI_DEV_GPU_MAX_OP_TEMP",
    "DCGM_FI_DEV_MEMORY_MAX_OP_TEMP_CELSIUS": "DCGM_FI_DEV_MEM_MAX_OP_TEMP",
    "DCGM_FI_DEV_BOARD_POWER_WATTS": "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS": "DCGM_FI_DEV_POWER_USAGE_INSTANT",
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS": "DCGM_FI_DEV_POWER_MGMT_LIMIT",
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS": "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS": "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF",
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_MIN_WATTS": "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN",
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_MAX_WATTS": "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX",
    "DCGM_FI_DEV_FB_USED_RATIO": "DCGM_FI_DEV_FB_USED_PERCENT",
    "DCGM_FI_DEV_GPU_PSTATE": "DCGM_FI_DEV_PSTATE",
    "DCGM_FI_DEV_PCIE_REPLAY_TOTAL": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_XID_ERROR": "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL": "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL": "DCGM_FI_DEV_RETIRED_SBE",
    "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL": "DCGM_FI_DEV_RETIRED_DBE",
    "DCGM_FI_DEV_PAGE_RETIRED_PENDING": "DCGM_FI_DEV_RETIRED_PENDING",
    "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL": "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILED": "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    **{
        f"DCGM_FI_DEV_BANK_REMAP_AVAIL_{left}": f"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_{left}"
        for left in ("MAX", "HIGH", "PARTIAL", "LOW", "NONE")
    },
    **{
        f"DCGM_FI_DEV_NVLINK_{error}_ERROR_TOTAL": f"DCGM_FI_DEV_NVLINK_{error}_ERROR_COUNT_TOTAL"
        for error in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
    },
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_SM_UTIL_RATIO": "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_PROF_SM_OCCUPANCY_RATIO": "DCGM_FI_PROF_SM_OCCUPANCY",
    "DCGM_FI_PROF_TENSOR_UTIL_RATIO": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_UTIL_RATIO": "DCGM_FI_PROF_DRAM_ACTIVE",
    **{
        f"DCGM_FI_PROF_{pipe}_UTIL_RATIO": f"DCGM_FI_PROF_PIPE_{pipe}_ACTIVE"
        for pipe in ("FP64", "FP32", "FP16", "INT")
    },
}
"""The fields that DCGM 4.6 has renamed, by their new names. Their values and units are the same as before."""

_BASE_UNITS: Mapping[str, str] = {
    "DCGM_FI_DEV_BAR1_CAPACITY_BYTES": "DCGM_FI_DEV_BAR1_TOTAL",
    "DCGM_FI_DEV_BAR1_USED_BYTES": "DCGM_FI_DEV_BAR1_USED",
    "DCGM_FI_DEV_FB_CAPACITY_BYTES": "DCGM_FI_DEV_FB_TOTAL",
    "DCGM_FI_DEV_FB_FREE_BYTES": "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_USED_BYTES": "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_RESERVED_BYTES": "DCGM_FI_DEV_FB_RESERVED",
    "DCGM_FI_DEV_SM_CLOCK_HERTZ": "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ": "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_VIDEO_CLOCK_HERTZ": "DCGM_FI_DEV_VIDEO_CLOCK",
    "DCGM_FI_DEV_SM_APP_CLOCK_HERTZ": "DCGM_FI_DEV_APP_SM_CLOCK",
    "DCGM_FI_DEV_MEMORY_APP_CLOCK_HERTZ": "DCGM_FI_DEV_APP_MEM_CLOCK",
    "DCGM_FI_DEV_SM_MAX_CLOCK_HERTZ": "DCGM_FI_DEV_MAX_SM_CLOCK",
    "DCGM_FI_DEV_MEMORY_MAX_CLOCK_HERTZ": "DCGM_FI_DEV_MAX_MEM_CLOCK",
    "DCGM_FI_DEV_VIDEO_MAX_CLOCK_HERTZ": "DCGM_FI_DEV_MAX_VIDEO_CLOCK",
    "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_FAN_SPEED_RATIO": "DCGM_FI_DEV_FAN_SPEED",
    "DCGM_FI_DEV_MEMORY_UTIL_RATIO": "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_ENC_UTIL_RATIO": "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL_RATIO": "DCGM_FI_DEV_DEC_UTIL",
    "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND": "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
}
"""The fields that DCGM 4.7 adds in the metric's own unit, and the older fields in MiB, MHz, mJ, per cent or MB/s."""


_POLICIES = {
    "POWER": "power",
    "THERMAL": "thermal",
    "SYNC_BOOST": "sync_boost",
    "LIMIT": "board_limit",
    "LOW_UTIL": "low_utilization",
    "RELIABILITY": "reliability",
    "APP": "application_clocks",
    "BASE": "base_clocks",
}
"""By part of the name. DCGM 4.7 reports these times in s; the unit of the older fields is not certain."""


def _violation(policy: str) -> Measure:
    name = semconv.GPU_VIOLATION_TIME
    descriptor = Descriptor(name, "s", "sum", DESCRIPTIONS[name])
    return Measure(descriptor, attributes={semconv.GPU_VIOLATION_POLICY: policy})


NEWER_FIELDS: Mapping[str, Measure] = {
    **{newer: FIELDS[older] for newer, older in RENAMED_FIELDS.items()},
    **{newer: replace(FIELDS[older], scale=1.0) for newer, older in _BASE_UNITS.items()},
    # In DCGM 4.6 another name of GPU_UTIL, in per cent. In 4.7 a field of its own, a ratio.
    "DCGM_FI_DEV_GPU_UTIL_RATIO": replace(FIELDS["DCGM_FI_DEV_GPU_UTIL"], scale=1.0, maybe_percent=True),
    **{f"DCGM_FI_DEV_GPU_{name}_THROTTLE_SECONDS_TOTAL": _violation(policy) for name, policy in _POLICIES.items()},
}
"""Measures by the names that DCGM 4.6 and 4.7 introduce."""

MEASURES: Mapping[str, Measure] = {**FIELDS, **NEWER_FIELDS}
"""Measures by all names of DCGM fields. The csv receiver reads these names."""
