"""NVML's fields, which are queried in batches, and the series of their values."""

import sys
from dataclasses import dataclass, replace

from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.driver.library import DriverVersion
from otel_zernel_receivers.nvml.points import attributes as a
from otel_zernel_receivers.nvml.points.series import MILLI, NvmlSeries, series

KIB, NS = 1024.0, 1e-9

ALL_LINKS = 0xFFFFFFFF
"""The scope of a field that is summed over all NVLink links (nvml.h)."""


@dataclass(frozen=True, slots=True)
class NvmlField:
    """A field of `nvmlDeviceGetFieldValues`."""

    series: NvmlSeries
    id: str
    """The name of pynvml's constant, without NVML_FI_."""
    scope: int = 0
    number: int = 0
    """The field's number, if it depends on the driver; 0 if pynvml's constant is right for every driver."""
    since: DriverVersion = (0, 0)
    """The first driver in which the number has this meaning."""
    until: DriverVersion = (sys.maxsize, 0)
    """The last driver in which the number has this meaning."""

    def applies_to(self, driver: DriverVersion) -> bool:
        """Whether the driver knows the field by this number."""
        return self.since <= driver <= self.until


def _by_error(metric: str, error: str, id_: str) -> NvmlField:
    return NvmlField(series(metric, 1.0, {a.ERROR: error}), id_)


def _by_direction(metric: str, direction: str, id_: str, scale: float = 1.0, scope: int = 0) -> NvmlField:
    return NvmlField(series(metric, scale, {a.DIRECTION: direction}), id_, scope)


def _margin_limit(id_: str, location: str, limit: str) -> NvmlField:
    attributes = {a.LOCATION: location, a.LIMIT: limit}
    return NvmlField(series(semconv.GPU_TEMPERATURE_MARGIN_LIMIT, 1.0, attributes), f"DEV_TEMPERATURE_{id_}_TLIMIT")


def _throttle_time(reason: str, id_: str) -> NvmlField:
    return NvmlField(
        series(semconv.GPU_THROTTLE_TIME, NS, {semconv.GPU_THROTTLE_REASON: reason}), f"DEV_CLOCKS_EVENT_REASON_{id_}"
    )


def _moved_throttle_time(reason: str, id_: str, old: int, new: int) -> tuple[NvmlField, NvmlField]:
    """A field whose number changed: `old` up to driver 580.65, `new` from 580.82, where `old` means power smoothing.

    The driver goes by the number, and pynvml's constant is that of its own version.
    """
    field = _throttle_time(reason, id_)
    return replace(field, number=old, until=(580, 65)), replace(field, number=new, since=(580, 82))


def _violation_time(policy: str, id_: str) -> NvmlField:
    return NvmlField(
        series(semconv.GPU_VIOLATION_TIME, NS, {semconv.GPU_VIOLATION_POLICY: policy}), f"DEV_PERF_POLICY_{id_}"
    )


FIELDS: tuple[NvmlField, ...] = (
    NvmlField(series("hw.temperature", 1.0, {a.LOCATION: "memory"}), "DEV_MEMORY_TEMP"),
    _margin_limit("SHUTDOWN", "gpu", "high.critical"),
    _margin_limit("SLOWDOWN", "gpu", "throttled"),
    _margin_limit("GPU_MAX", "gpu", "high.degraded"),
    _margin_limit("MEM_MAX", "memory", "high.degraded"),
    NvmlField(series(semconv.GPU_POWER_INSTANT, MILLI), "DEV_POWER_INSTANT"),
    NvmlField(series(semconv.GPU_MEMORY_POWER, MILLI), "DEV_POWER_AVERAGE", 2),  # NVML_POWER_SCOPE_MEMORY
    NvmlField(series(semconv.GPU_MODULE_POWER, MILLI), "DEV_POWER_AVERAGE", 1),  # NVML_POWER_SCOPE_MODULE
    NvmlField(series("hw.energy", MILLI), "DEV_TOTAL_ENERGY_CONSUMPTION"),
    # In ns (nvml.h).
    _throttle_time("sw_power_cap", "SW_POWER_CAP"),
    _throttle_time("sync_boost", "SYNC_BOOST"),
    *_moved_throttle_time("sw_thermal_slowdown", "SW_THERM_SLOWDOWN", 251, 269),
    *_moved_throttle_time("hw_thermal_slowdown", "HW_THERM_SLOWDOWN", 252, 270),
    *_moved_throttle_time("hw_power_brake", "HW_POWER_BRAKE_SLOWDOWN", 253, 271),
    _violation_time("power", "POWER"),
    _violation_time("thermal", "THERMAL"),
    _violation_time("sync_boost", "SYNC_BOOST"),
    _violation_time("board_limit", "BOARD_LIMIT"),
    _violation_time("low_utilization", "LOW_UTILIZATION"),
    _violation_time("reliability", "RELIABILITY"),
    _violation_time("application_clocks", "TOTAL_APP_CLOCKS"),
    _violation_time("base_clocks", "TOTAL_BASE_CLOCKS"),
    NvmlField(series(semconv.GPU_ECC_ENABLED), "DEV_ECC_CURRENT"),
    _by_error("hw.errors", "corrected", "DEV_ECC_SBE_VOL_TOTAL"),
    _by_error("hw.errors", "uncorrected", "DEV_ECC_DBE_VOL_TOTAL"),
    _by_error(semconv.GPU_ECC_LIFETIME_ERRORS, "corrected", "DEV_ECC_SBE_AGG_TOTAL"),
    _by_error(semconv.GPU_ECC_LIFETIME_ERRORS, "uncorrected", "DEV_ECC_DBE_AGG_TOTAL"),
    _by_error(semconv.GPU_MEMORY_RETIRED_PAGES, "corrected", "DEV_RETIRED_SBE"),
    _by_error(semconv.GPU_MEMORY_RETIRED_PAGES, "uncorrected", "DEV_RETIRED_DBE"),
    NvmlField(series(semconv.GPU_MEMORY_RETIRED_PAGES_PENDING), "DEV_RETIRED_PENDING"),
    _by_error(semconv.GPU_MEMORY_REMAPPED_ROWS, "corrected", "DEV_REMAPPED_COR"),
    _by_error(semconv.GPU_MEMORY_REMAPPED_ROWS, "uncorrected", "DEV_REMAPPED_UNC"),
    NvmlField(series(semconv.GPU_MEMORY_ROW_REMAP_PENDING), "DEV_REMAPPED_PENDING"),
    NvmlField(series(semconv.GPU_MEMORY_ROW_REMAP_FAILED), "DEV_REMAPPED_FAILURE"),
    NvmlField(series(semconv.GPU_RECOVERY_ACTION), "DEV_GET_GPU_RECOVERY_ACTION"),
    _by_direction("hw.gpu.io", "transmit", "DEV_PCIE_COUNT_TX_BYTES"),
    _by_direction("hw.gpu.io", "receive", "DEV_PCIE_COUNT_RX_BYTES"),
    NvmlField(series(semconv.GPU_PCIE_REPLAYS), "DEV_PCIE_REPLAY_COUNTER"),
    *(
        _by_error(semconv.GPU_PCIE_ERRORS, error, f"DEV_PCIE_COUNT_{id_}")
        for error, id_ in (
            ("correctable", "CORRECTABLE_ERRORS"),
            ("non_fatal", "NON_FATAL_ERROR"),
            ("fatal", "FATAL_ERROR"),
            ("receiver", "RECEIVER_ERROR"),
            ("bad_tlp", "BAD_TLP"),
            ("bad_dllp", "BAD_DLLP"),
            ("nak_received", "NAKS_RECEIVED"),
            ("nak_sent", "NAKS_SENT"),
            ("unsupported_request", "UNSUPPORTED_REQ"),
            ("lcrc", "LCRC_ERROR"),
            ("lane", "LANE_ERROR"),
        )
    ),
    _by_direction(semconv.GPU_NVLINK_IO, "transmit", "DEV_NVLINK_THROUGHPUT_DATA_TX", KIB, ALL_LINKS),
    _by_direction(semconv.GPU_NVLINK_IO, "receive", "DEV_NVLINK_THROUGHPUT_DATA_RX", KIB, ALL_LINKS),
    *(
        _by_error(semconv.GPU_NVLINK_ERRORS, error, f"DEV_NVLINK_{error.upper()}_ERROR_COUNT_TOTAL")
        for error in ("crc_flit", "crc_data", "replay", "recovery", "ecc_data")
    ),
)
"""The fields of a board. The totals of ECC errors, pages and rows are those of nvidia-smi."""
