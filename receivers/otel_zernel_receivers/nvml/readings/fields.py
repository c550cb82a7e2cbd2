"""What a board is asked in batches: NVML's fields, and the series their values become."""

from dataclasses import dataclass

from otel_zernel_receivers.nvml.points import metrics as m
from otel_zernel_receivers.nvml.points.series import MILLI, Stream, stream

KIB, NS = 1024.0, 1e-9

ALL_LINKS = 0xFFFFFFFF
"""The scope of a field that sums over links (nvml.h)."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of `nvmlDeviceGetFieldValues`, of which up to 32 go into a call."""

    stream: Stream
    id: str
    """The name of pynvml's constant, without NVML_FI_."""
    scope: int = 0
    driver: int = 0
    """The driver from which on the number means this; before, it meant something else."""


def _errors(error: str, lifetime: str, id_: str) -> Field:
    return Field(stream("hw.errors", 1.0, {m.ERROR: error, m.ECC_COUNTER: lifetime}), id_)


def _of_error(metric: str, error: str, id_: str, scope: int = 0) -> Field:
    return Field(stream(metric, 1.0, {m.ERROR: error}), id_, scope)


def _io(metric: str, direction: str, id_: str, scale: float = 1.0, scope: int = 0) -> Field:
    return Field(stream(metric, scale, {m.DIRECTION: direction}), id_, scope)


def _margin(id_: str, location: str, limit: str) -> Field:
    attributes = {m.LOCATION: location, m.LIMIT: limit}
    return Field(stream("zernel.gpu.temperature.margin.limit", 1.0, attributes), f"DEV_TEMPERATURE_{id_}_TLIMIT")


def _throttled(reason: str, id_: str, driver: int = 0) -> Field:
    return Field(stream("zernel.gpu.throttle.time", NS, {m.REASON: reason}), id_, driver=driver)


def _violation(policy: str, id_: str) -> Field:
    return Field(stream("zernel.gpu.violation.time", NS, {m.POLICY: policy}), f"DEV_PERF_POLICY_{id_}")


FIELDS: tuple[Field, ...] = (
    Field(stream("hw.temperature", 1.0, {m.LOCATION: "memory"}), "DEV_MEMORY_TEMP"),
    _margin("SHUTDOWN", "gpu", "high.critical"),
    _margin("SLOWDOWN", "gpu", "throttled"),
    _margin("GPU_MAX", "gpu", "high.degraded"),
    _margin("MEM_MAX", "memory", "high.degraded"),
    Field(stream("zernel.gpu.power.instant", MILLI), "DEV_POWER_INSTANT"),
    Field(stream("zernel.gpu.memory.power", MILLI), "DEV_POWER_AVERAGE", 2),  # NVML_POWER_SCOPE_MEMORY
    Field(stream("zernel.gpu.module.power", MILLI), "DEV_POWER_AVERAGE", 1),  # NVML_POWER_SCOPE_MODULE
    Field(stream("hw.energy", MILLI), "DEV_TOTAL_ENERGY_CONSUMPTION"),
    # ns, by nvml.h. The numbers of the last three belonged to power smoothing before 580.
    _throttled("sw_power_cap", "DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP"),
    _throttled("sync_boost", "DEV_CLOCKS_EVENT_REASON_SYNC_BOOST"),
    _throttled("sw_thermal_slowdown", "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", 580),
    _throttled("hw_thermal_slowdown", "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", 580),
    _throttled("hw_power_brake", "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", 580),
    _violation("power", "POWER"),
    _violation("thermal", "THERMAL"),
    _violation("sync_boost", "SYNC_BOOST"),
    _violation("board_limit", "BOARD_LIMIT"),
    _violation("low_utilization", "LOW_UTILIZATION"),
    _violation("reliability", "RELIABILITY"),
    _violation("application_clocks", "TOTAL_APP_CLOCKS"),
    _violation("base_clocks", "TOTAL_BASE_CLOCKS"),
    Field(stream("zernel.gpu.ecc.enabled"), "DEV_ECC_CURRENT"),
    _errors("corrected", "volatile", "DEV_ECC_SBE_VOL_TOTAL"),
    _errors("uncorrected", "volatile", "DEV_ECC_DBE_VOL_TOTAL"),
    _errors("corrected", "aggregate", "DEV_ECC_SBE_AGG_TOTAL"),
    _errors("uncorrected", "aggregate", "DEV_ECC_DBE_AGG_TOTAL"),
    _of_error("zernel.gpu.memory.retired_pages", "corrected", "DEV_RETIRED_SBE"),
    _of_error("zernel.gpu.memory.retired_pages", "uncorrected", "DEV_RETIRED_DBE"),
    Field(stream("zernel.gpu.memory.retired_pages.pending"), "DEV_RETIRED_PENDING"),
    _of_error("zernel.gpu.memory.remapped_rows", "corrected", "DEV_REMAPPED_COR"),
    _of_error("zernel.gpu.memory.remapped_rows", "uncorrected", "DEV_REMAPPED_UNC"),
    Field(stream("zernel.gpu.memory.row_remap.pending"), "DEV_REMAPPED_PENDING"),
    Field(stream("zernel.gpu.memory.row_remap.failed"), "DEV_REMAPPED_FAILURE"),
    Field(stream("zernel.gpu.recovery_action"), "DEV_GET_GPU_RECOVERY_ACTION"),
    _io("hw.gpu.io", "transmit", "DEV_PCIE_COUNT_TX_BYTES"),
    _io("hw.gpu.io", "receive", "DEV_PCIE_COUNT_RX_BYTES"),
    Field(stream("zernel.gpu.pcie.replays"), "DEV_PCIE_REPLAY_COUNTER"),
    *(
        _of_error("zernel.gpu.pcie.errors", error, f"DEV_PCIE_COUNT_{id_}")
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
    _io("zernel.gpu.nvlink.io", "transmit", "DEV_NVLINK_THROUGHPUT_DATA_TX", KIB, ALL_LINKS),
    _io("zernel.gpu.nvlink.io", "receive", "DEV_NVLINK_THROUGHPUT_DATA_RX", KIB, ALL_LINKS),
    *(
        _of_error("zernel.gpu.nvlink.errors", error, f"DEV_NVLINK_{error.upper()}_ERROR_COUNT_TOTAL")
        for error in ("crc_flit", "crc_data", "replay", "recovery", "ecc_data")
    ),
)
"""What a board is asked in batches. Totals of ECC, pages and rows are nvidia-smi's."""
