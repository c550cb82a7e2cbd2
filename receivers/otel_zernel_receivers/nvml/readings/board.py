"""What a GPU is asked at every scrape: NVML's functions, and the series their answers become.

Only what NVML documents for the kind of device is called: a blind tour of all functions has crashed inside the driver.
"""

from collections.abc import Iterable, Mapping, Sequence
from ctypes import byref
from math import nan

from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points import metrics as m
from otel_zernel_receivers.nvml.points.series import MHZ, MILLI, PERCENT, Stream, stream
from otel_zernel_receivers.nvml.readings.links import LINKS
from otel_zernel_receivers.nvml.readings.queries import Ask, Query, call, query

KB = 1000.0


def _memory_v2(nvml: Nvml, device: Handle) -> Sequence[float]:
    memory = nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2)
    return memory.used, memory.total, memory.used / memory.total, memory.free, memory.reserved


def _memory(nvml: Nvml, device: Handle) -> Sequence[float]:
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    return memory.used, memory.total, memory.used / memory.total, memory.free, nan


SRAM_SOURCES = {"l2": "L2", "sm": "Sm", "pcie": "Pcie", "microcontroller": "Mcu", "other": "Other"}
"""Parts of aggregateUncBucket… in nvml.h."""


def _sram(nvml: Nvml, device: Handle) -> Sequence[float]:
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(device, byref(status))
    sources = (getattr(status, f"aggregateUncBucket{part}") for part in SRAM_SOURCES.values())
    return status.bThresholdExceeded, *sources


COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
"""NVML_COMPUTEMODE_… in nvml.h, by number."""


def _compute_mode(nvml: Nvml, device: Handle) -> Sequence[float]:
    mode = nvml.nvmlDeviceGetComputeMode(device)
    return [float(mode == one) for one in range(len(COMPUTE_MODES))]


FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
"""NVML_GPU_FABRIC_STATE_… in nvml.h."""


def _fabric(nvml: Nvml, device: Handle) -> Sequence[float]:
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(device, byref(info))
    state = info.state & 0xFF  # a byte in nvml.h, a word in pynvml
    if not state:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return [float(state == one) for one in FABRIC_STATES]


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
"""By bit: nvmlClocksEventReason… in nvml.h."""


def _reasons(function: str) -> Ask:
    def ask(nvml: Nvml, device: Handle) -> Sequence[float]:
        mask = getattr(nvml, function)(device)
        return [float(bool(mask & bit)) for bit in THROTTLE_REASONS]

    return ask


def _ecc(location: str, code: int) -> Iterable[Query]:
    for error, error_code in (("corrected", 0), ("uncorrected", 1)):
        for lifetime, counter in (("volatile", 0), ("aggregate", 1)):
            attributes = {m.ERROR: error, m.ECC_COUNTER: lifetime, m.ECC_LOCATION: location}
            ask = call("nvmlDeviceGetMemoryErrorCounter", error_code, counter, code)
            yield Query("nvmlDeviceGetMemoryErrorCounter", (stream("zernel.gpu.ecc.errors", 1.0, attributes),), (ask,))


def _utilization(task: str) -> Stream:
    return stream("hw.gpu.utilization", PERCENT, {m.TASK: task})


def _engine(function: str, task: str) -> Query:
    return query(function, _utilization(task), parts=[0])


def _clocks(function: str, metric: str, domains: Mapping[str, int]) -> Iterable[Query]:
    for domain, code in domains.items():
        yield query(function, stream(metric, MHZ, {m.DOMAIN: domain}), of=code)


def _threshold(code: int, location: str, limit: str) -> Query:
    attributes = {m.LOCATION: location, m.LIMIT: limit}
    return query("nvmlDeviceGetTemperatureThreshold", stream("hw.temperature.limit", 1.0, attributes), of=code)


def _pcie(code: int, direction: str) -> Query:
    attributes = {m.SOURCE: "driver", m.DIRECTION: direction}
    return query("nvmlDeviceGetPcieThroughput", stream("zernel.gpu.pcie.throughput", KB, attributes), of=code)


_DOMAINS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
_BANKS = ("max", "high", "partial", "low", "none")

MEMORY = Query(
    "nvmlDeviceGetMemoryInfo",
    (
        stream("hw.gpu.memory.usage"),
        stream("hw.gpu.memory.limit"),
        stream("hw.gpu.memory.utilization"),
        stream("zernel.gpu.memory.free"),
        stream("zernel.gpu.memory.reserved"),
    ),
    (_memory_v2, _memory),
)
BAR1 = query(
    "nvmlDeviceGetBAR1MemoryInfo",
    stream("zernel.gpu.memory.bar1.usage"),
    stream("zernel.gpu.memory.bar1.limit"),
    parts=["bar1Used", "bar1Total"],
)

BOARD: tuple[Query, ...] = (
    query(
        "nvmlDeviceGetUtilizationRates",
        _utilization("general"),
        stream("zernel.gpu.memory.bandwidth.utilization", PERCENT),
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
        stream("hw.temperature", 1.0, {m.LOCATION: "gpu"}),
        of=0,
        older="nvmlDeviceGetTemperature",
    ),
    query("nvmlDeviceGetMarginTemperature", stream("zernel.gpu.temperature.margin")),
    _threshold(0, "gpu", "high.critical"),
    _threshold(1, "gpu", "throttled"),
    _threshold(2, "memory", "high.degraded"),
    _threshold(3, "gpu", "high.degraded"),
    _threshold(5, "gpu", "target"),
    query("nvmlDeviceGetPowerUsage", stream("hw.power", MILLI)),
    query("nvmlDeviceGetPowerManagementLimit", stream("zernel.gpu.power.limit", MILLI)),
    query("nvmlDeviceGetEnforcedPowerLimit", stream("zernel.gpu.power.limit.enforced", MILLI)),
    query("nvmlDeviceGetPowerManagementDefaultLimit", stream("zernel.gpu.power.limit.default", MILLI)),
    query(
        "nvmlDeviceGetPowerManagementLimitConstraints",
        stream("zernel.gpu.power.limit.min", MILLI),
        stream("zernel.gpu.power.limit.max", MILLI),
        parts=[0, 1],
    ),
    *_clocks("nvmlDeviceGetClockInfo", "zernel.gpu.clock", _DOMAINS),
    *_clocks("nvmlDeviceGetMaxClockInfo", "zernel.gpu.clock.limit", _DOMAINS),
    *_clocks("nvmlDeviceGetApplicationsClock", "zernel.gpu.clock.application", {"graphics": 0, "memory": 2}),
    query("nvmlDeviceGetPerformanceState", stream("zernel.gpu.performance_state")),
    Query(
        "nvmlDeviceGetCurrentClocksEventReasons",
        tuple(stream("zernel.gpu.throttle.active", 1.0, {m.REASON: reason}) for reason in THROTTLE_REASONS.values()),
        (_reasons("nvmlDeviceGetCurrentClocksEventReasons"), _reasons("nvmlDeviceGetCurrentClocksThrottleReasons")),
    ),
    Query(
        "nvmlDeviceGetSramEccErrorStatus",
        (
            stream("zernel.gpu.ecc.sram.threshold_exceeded"),
            *(stream("zernel.gpu.ecc.sram.errors", 1.0, {m.ECC_LOCATION: source}) for source in SRAM_SOURCES),
        ),
        (_sram,),
    ),
    *_ecc("dram", 2),
    *_ecc("sram", 7),
    query(
        "nvmlDeviceGetRowRemapperHistogram",
        *(stream("zernel.gpu.memory.row_remap.banks", 1.0, {m.AVAILABILITY: left}) for left in _BANKS),
        parts=_BANKS,
    ),
    query(
        "nvmlDeviceGetRepairStatus",
        *(stream("zernel.gpu.repair.pending", 1.0, {m.REPAIR: unit}) for unit in ("channel", "tpc")),
        parts=[0, 1],
    ),
    _pcie(0, "transmit"),
    _pcie(1, "receive"),
    query("nvmlDeviceGetCurrPcieLinkGeneration", stream("zernel.gpu.pcie.link.generation")),
    query("nvmlDeviceGetMaxPcieLinkGeneration", stream("zernel.gpu.pcie.link.generation.limit")),
    query("nvmlDeviceGetCurrPcieLinkWidth", stream("zernel.gpu.pcie.link.width")),
    query("nvmlDeviceGetMaxPcieLinkWidth", stream("zernel.gpu.pcie.link.width.limit")),
    Query(
        "nvmlDeviceGetGpuFabricInfoV",
        tuple(stream("zernel.gpu.fabric.state", 1.0, {m.FABRIC_STATE: state}) for state in FABRIC_STATES.values()),
        (_fabric,),
    ),
    *LINKS,
    query("nvmlDeviceGetFanSpeed", stream("hw.fan.speed_ratio", PERCENT)),
    query("nvmlDeviceGetMigMode", stream("zernel.gpu.mig.enabled"), parts=[0]),
    query("nvmlDeviceGetPersistenceMode", stream("zernel.gpu.persistence.enabled")),
    Query(
        "nvmlDeviceGetComputeMode",
        tuple(stream("zernel.gpu.compute_mode", 1.0, {m.COMPUTE_MODE: mode}) for mode in COMPUTE_MODES),
        (_compute_mode,),
    ),
    query(
        "nvmlDeviceGetFBCStats",
        stream("zernel.gpu.frame_capture.sessions"),
        stream("zernel.gpu.frame_capture.frame_rate"),
        stream("zernel.gpu.frame_capture.latency", 1e-6),
        parts=["sessionsCount", "averageFPS", "averageLatency"],
    ),
    query(
        "nvmlDeviceGetEncoderStats",
        stream("zernel.gpu.encoder.sessions"),
        stream("zernel.gpu.encoder.frame_rate"),
        stream("zernel.gpu.encoder.latency", 1e-6),
        parts=[0, 1, 2],
    ),
)
"""What a board is asked."""

INSTANCE: tuple[Query, ...] = (MEMORY, BAR1)
"""What a MIG instance is asked; NVML answers the rest for the whole board only."""
