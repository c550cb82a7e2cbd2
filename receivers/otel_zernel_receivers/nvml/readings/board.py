"""The queries to a board and to a MIG instance: NVML functions and the series of their values.

Each function is called only for the kind of device that NVML documents it for: calling all functions on all devices
has crashed inside the driver.
"""

from collections.abc import Iterable, Mapping, Sequence
from ctypes import byref
from math import nan

from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points import attributes as a
from otel_zernel_receivers.nvml.points.series import MHZ, MILLI, PERCENT, NvmlSeries, series
from otel_zernel_receivers.nvml.readings.links import LINK_STATES_QUERY
from otel_zernel_receivers.nvml.readings.queries import NvmlQuery, ReadValues, query, read_values

KB = 1000.0


def _read_memory_v2(nvml: Nvml, device: Handle) -> Sequence[float]:
    memory = nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2)
    return memory.used, memory.total, memory.used / memory.total, memory.free, memory.reserved


def _read_memory(nvml: Nvml, device: Handle) -> Sequence[float]:
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    return memory.used, memory.total, memory.used / memory.total, memory.free, nan


SRAM_SOURCES = {"l2": "L2", "sm": "Sm", "pcie": "Pcie", "microcontroller": "Mcu", "other": "Other"}
"""Locations, and the suffixes of aggregateUncBucket… in nvml.h."""


def _read_sram(nvml: Nvml, device: Handle) -> Sequence[float]:
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(device, byref(status))
    sources = (getattr(status, f"aggregateUncBucket{part}") for part in SRAM_SOURCES.values())
    return status.bThresholdExceeded, *sources


COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
"""NVML_COMPUTEMODE_… in nvml.h; the index is the value."""


def _read_compute_mode(nvml: Nvml, device: Handle) -> Sequence[float]:
    mode = nvml.nvmlDeviceGetComputeMode(device)
    return [float(mode == number) for number in range(len(COMPUTE_MODES))]


FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
"""NVML_GPU_FABRIC_STATE_… in nvml.h."""
_REGISTERED = 3
"""The state in which `status` and `healthMask` have a meaning (nvml.h)."""
FABRIC_PROBLEMS = {"degraded_bandwidth": 0, "route_recovery": 2, "route_unhealthy": 4, "access_timeout_recovery": 6}
"""By NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_…: two bits each, 0 for not supported, 1 for true, 2 for false (nvml.h)."""
_CONFIGURATION_SHIFT = 8
"""NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION: four bits, 0 for not supported, 1 for none (nvml.h)."""
_FABRIC_PROBLEM_TYPES = ("registration", *FABRIC_PROBLEMS, "incorrect_configuration")


def _read_fabric(nvml: Nvml, device: Handle) -> Sequence[float]:
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(device, byref(info))
    state = info.state & 0xFF  # one byte in nvml.h, but four in pynvml
    if not state:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    states = [float(state == number) for number in FABRIC_STATES]
    if state != _REGISTERED:
        return [*states, *(nan for _ in _FABRIC_PROBLEM_TYPES)]
    problems = [_flag(info.healthMask >> shift & 0b11) for shift in FABRIC_PROBLEMS.values()]
    configuration = info.healthMask >> _CONFIGURATION_SHIFT & 0b1111
    return [
        *states,
        float(info.status != nvml.NVML_SUCCESS),
        *problems,
        float(configuration > 1) if configuration else nan,
    ]


def _read_license(nvml: Nvml, device: Handle) -> Sequence[float]:
    """Whether the driver of a virtual machine has a license for one of the features of its vGPU."""
    answer = nvml.nvmlDeviceGetGridLicensableFeatures(device)
    features = answer.gridLicensableFeatures[: answer.licensableFeaturesCount]
    return [float(any(feature.featureState for feature in features))]


def _flag(bits: int) -> float:
    """1 or 0 for a flag of the health mask; NaN if the fabric does not report it."""
    return float(bits == 1) if bits else nan


THROTTLE_REASONS = {
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
"""By bit of the mask: nvmlClocksEventReason… in nvml.h."""


def _read_reasons(function: str) -> ReadValues:
    def read(nvml: Nvml, device: Handle) -> Sequence[float]:
        mask = getattr(nvml, function)(device)
        return [float(bool(mask & bit)) for bit in THROTTLE_REASONS]

    return read


def _ecc(location: str, code: int) -> Iterable[NvmlQuery]:
    for error, error_code in (("corrected", 0), ("uncorrected", 1)):
        for lifetime, counter in (("volatile", 0), ("aggregate", 1)):
            attributes = {a.ERROR: error, semconv.GPU_ECC_COUNTER: lifetime, semconv.GPU_ECC_LOCATION: location}
            read = read_values("nvmlDeviceGetMemoryErrorCounter", error_code, counter, code)
            yield NvmlQuery(
                "nvmlDeviceGetMemoryErrorCounter", (series(semconv.GPU_ECC_ERRORS, 1.0, attributes),), (read,)
            )


def _utilization(task: str) -> NvmlSeries:
    return series("hw.gpu.utilization", PERCENT, {a.TASK: task})


def _engine(function: str, task: str) -> NvmlQuery:
    return query(function, _utilization(task), parts=[0])


def _clocks(function: str, metric: str, domains: Mapping[str, int]) -> Iterable[NvmlQuery]:
    for domain, code in domains.items():
        yield query(function, series(metric, MHZ, {semconv.GPU_CLOCK_DOMAIN: domain}), argument=code)


def _threshold(code: int, location: str, limit: str) -> NvmlQuery:
    attributes = {a.LOCATION: location, a.LIMIT: limit}
    return query("nvmlDeviceGetTemperatureThreshold", series("hw.temperature.limit", 1.0, attributes), argument=code)


def _pcie(code: int, direction: str) -> NvmlQuery:
    attributes = {semconv.GPU_COUNTER_SOURCE: "driver", a.DIRECTION: direction}
    return query("nvmlDeviceGetPcieThroughput", series(semconv.GPU_PCIE_THROUGHPUT, KB, attributes), argument=code)


_DOMAINS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
_BANKS = ("max", "high", "partial", "low", "none")

MEMORY = NvmlQuery(
    "nvmlDeviceGetMemoryInfo",
    (
        series("hw.gpu.memory.usage"),
        series("hw.gpu.memory.limit"),
        series("hw.gpu.memory.utilization"),
        series(semconv.GPU_MEMORY_FREE),
        series(semconv.GPU_MEMORY_RESERVED),
    ),
    (_read_memory_v2, _read_memory),
)
BAR1 = query(
    "nvmlDeviceGetBAR1MemoryInfo",
    series(semconv.GPU_MEMORY_BAR1_USAGE),
    series(semconv.GPU_MEMORY_BAR1_LIMIT),
    parts=["bar1Used", "bar1Total"],
)

BOARD: tuple[NvmlQuery, ...] = (
    query(
        "nvmlDeviceGetUtilizationRates",
        _utilization("general"),
        series(semconv.GPU_MEMORY_BANDWIDTH_UTILIZATION, PERCENT),
        parts=["gpu", "memory"],
    ),
    _engine("nvmlDeviceGetEncoderUtilization", "encoder"),
    _engine("nvmlDeviceGetDecoderUtilization", "decoder"),
    _engine("nvmlDeviceGetJpgUtilization", "jpeg"),
    _engine("nvmlDeviceGetOfaUtilization", "ofa"),
    MEMORY,
    BAR1,
    query(
        "nvmlDeviceGetTemperatureV",
        series("hw.temperature", 1.0, {a.LOCATION: "gpu"}),
        argument=0,
        older_function="nvmlDeviceGetTemperature",
    ),
    query("nvmlDeviceGetMarginTemperature", series(semconv.GPU_TEMPERATURE_MARGIN)),
    _threshold(0, "gpu", "high.critical"),
    _threshold(1, "gpu", "throttled"),
    _threshold(2, "memory", "high.degraded"),
    _threshold(3, "gpu", "high.degraded"),
    _threshold(5, "gpu", "target"),
    query("nvmlDeviceGetPowerUsage", series("hw.power", MILLI)),
    query("nvmlDeviceGetPowerManagementLimit", series(semconv.GPU_POWER_LIMIT, MILLI)),
    query("nvmlDeviceGetEnforcedPowerLimit", series(semconv.GPU_POWER_LIMIT_ENFORCED, MILLI)),
    query("nvmlDeviceGetPowerManagementDefaultLimit", series(semconv.GPU_POWER_LIMIT_DEFAULT, MILLI)),
    query(
        "nvmlDeviceGetPowerManagementLimitConstraints",
        series(semconv.GPU_POWER_LIMIT_MIN, MILLI),
        series(semconv.GPU_POWER_LIMIT_MAX, MILLI),
        parts=[0, 1],
    ),
    *_clocks("nvmlDeviceGetClockInfo", semconv.GPU_CLOCK, _DOMAINS),
    *_clocks("nvmlDeviceGetMaxClockInfo", semconv.GPU_CLOCK_LIMIT, _DOMAINS),
    *_clocks("nvmlDeviceGetApplicationsClock", semconv.GPU_CLOCK_APPLICATION, {"graphics": 0, "memory": 2}),
    query("nvmlDeviceGetPerformanceState", series(semconv.GPU_PERFORMANCE_STATE)),
    NvmlQuery(
        "nvmlDeviceGetCurrentClocksEventReasons",
        tuple(
            series(semconv.GPU_THROTTLE_ACTIVE, 1.0, {semconv.GPU_THROTTLE_REASON: reason})
            for reason in THROTTLE_REASONS.values()
        ),
        (
            _read_reasons("nvmlDeviceGetCurrentClocksEventReasons"),
            _read_reasons("nvmlDeviceGetCurrentClocksThrottleReasons"),
        ),
    ),
    NvmlQuery(
        "nvmlDeviceGetSramEccErrorStatus",
        (
            series(semconv.GPU_ECC_SRAM_THRESHOLD_EXCEEDED),
            *(series(semconv.GPU_ECC_SRAM_ERRORS, 1.0, {semconv.GPU_ECC_LOCATION: source}) for source in SRAM_SOURCES),
        ),
        (_read_sram,),
    ),
    *_ecc("dram", 2),
    *_ecc("sram", 7),
    query(
        "nvmlDeviceGetRowRemapperHistogram",
        *(
            series(semconv.GPU_MEMORY_ROW_REMAP_BANKS, 1.0, {semconv.GPU_ROW_REMAP_AVAILABILITY: left})
            for left in _BANKS
        ),
        parts=_BANKS,
    ),
    query(
        "nvmlDeviceGetRepairStatus",
        *(series(semconv.GPU_REPAIR_PENDING, 1.0, {semconv.GPU_REPAIR_UNIT: unit}) for unit in ("channel", "tpc")),
        parts=[0, 1],
    ),
    _pcie(0, "transmit"),
    _pcie(1, "receive"),
    query("nvmlDeviceGetCurrPcieLinkGeneration", series(semconv.GPU_PCIE_LINK_GENERATION)),
    query("nvmlDeviceGetMaxPcieLinkGeneration", series(semconv.GPU_PCIE_LINK_GENERATION_LIMIT)),
    query("nvmlDeviceGetCurrPcieLinkWidth", series(semconv.GPU_PCIE_LINK_WIDTH)),
    query("nvmlDeviceGetMaxPcieLinkWidth", series(semconv.GPU_PCIE_LINK_WIDTH_LIMIT)),
    NvmlQuery(
        "nvmlDeviceGetGpuFabricInfoV",
        (
            *(
                series(semconv.GPU_FABRIC_STATE, 1.0, {semconv.GPU_FABRIC_STATE: state})
                for state in FABRIC_STATES.values()
            ),
            *(
                series(semconv.GPU_FABRIC_PROBLEM, 1.0, {semconv.GPU_FABRIC_PROBLEM_TYPE: problem})
                for problem in _FABRIC_PROBLEM_TYPES
            ),
        ),
        (_read_fabric,),
    ),
    LINK_STATES_QUERY,
    query("nvmlDeviceGetFanSpeed", series("hw.fan.speed_ratio", PERCENT)),
    NvmlQuery("nvmlDeviceGetGridLicensableFeatures", (series(semconv.GPU_VGPU_LICENSED),), (_read_license,)),
    query("nvmlDeviceGetMigMode", series(semconv.GPU_MIG_ENABLED), parts=[0]),
    query("nvmlDeviceGetPersistenceMode", series(semconv.GPU_PERSISTENCE_ENABLED)),
    NvmlQuery(
        "nvmlDeviceGetComputeMode",
        tuple(series(semconv.GPU_COMPUTE_MODE, 1.0, {semconv.GPU_COMPUTE_MODE: mode}) for mode in COMPUTE_MODES),
        (_read_compute_mode,),
    ),
    query(
        "nvmlDeviceGetFBCStats",
        series(semconv.GPU_FRAME_CAPTURE_SESSIONS),
        series(semconv.GPU_FRAME_CAPTURE_FRAME_RATE),
        series(semconv.GPU_FRAME_CAPTURE_LATENCY, 1e-6),
        parts=["sessionsCount", "averageFPS", "averageLatency"],
    ),
    query(
        "nvmlDeviceGetEncoderStats",
        series(semconv.GPU_ENCODER_SESSIONS),
        series(semconv.GPU_ENCODER_FRAME_RATE),
        series(semconv.GPU_ENCODER_LATENCY, 1e-6),
        parts=[0, 1, 2],
    ),
)
"""The queries to a board."""

INSTANCE: tuple[NvmlQuery, ...] = (MEMORY, BAR1)
"""The queries to a MIG instance. NVML answers all others for the whole board only."""
