"""What a GPU is asked at every scrape: NVML's functions, and the series their answers become.

Only what NVML documents for the kind of device is called: a blind tour of all functions has crashed inside the driver.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import byref
from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple

from otel_zernel.points import AttributeValue
from otel_zernel_receivers.nvml import metrics as m
from otel_zernel_receivers.nvml.library import Handle, Nvml

PERCENT, MHZ, MILLI, KB = 0.01, 1e6, 1e-3, 1000.0

NVLINKS = 18
"""The most links a GPU has (NVML_NVLINK_MAX_LINKS)."""


class Stream(NamedTuple):
    """A series of a metric: its name and the attributes that tell it from its siblings."""

    metric: str
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    scale: float = 1.0
    """What the driver's numbers are multiplied by."""

    def scaled(self, number: float) -> float:
        """The driver's number in the metric's unit. 57 % is 0.57, not 0.5700000000000001."""
        return number / round(1 / self.scale) if self.scale < 1 else number * self.scale


def stream(metric: str, scale: float = 1.0, attributes: Mapping[str, AttributeValue] | None = None) -> Stream:
    """A stream whose values are multiplied by `scale`."""
    return Stream(metric, tuple((attributes or {}).items()), scale)


Ask = Callable[[Nvml, Handle], Sequence[float]]
"""Asks a device; a value for each stream of the query, nan for none."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question to a device. The first of `asks` that the driver knows is used."""

    name: str
    """NVML's function, as `zernel.nvml.query.duration` names it."""
    streams: tuple[Stream, ...]
    asks: tuple[Ask, ...]


def _select(answer: Any, keys: Sequence[str | int]) -> list[float]:
    """The parts of an answer: of a structure, of a list, or itself."""
    if not keys:
        return [answer]
    return [answer[key] if isinstance(key, int) else getattr(answer, key) for key in keys]


def _call(function: str, *arguments: int, parts: Sequence[str | int] = ()) -> Ask:
    def ask(nvml: Nvml, device: Handle) -> Sequence[float]:
        return _select(getattr(nvml, function)(device, *arguments), parts)

    return ask


def _query(
    function: str, *streams: Stream, of: int | None = None, parts: Sequence[str | int] = (), older: str = ""
) -> Query:
    """A question to one function, in older drivers called otherwise, about the `of` it takes as its argument."""
    arguments = () if of is None else (of,)
    functions = (function, older) if older else (function,)
    return Query(function, streams, tuple(_call(name, *arguments, parts=parts) for name in functions))


def _memory_v2(nvml: Nvml, device: Handle) -> Sequence[float]:
    memory = nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2)
    return memory.used, memory.total, memory.used / memory.total, memory.free, memory.reserved


def _memory(nvml: Nvml, device: Handle) -> Sequence[float]:
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    return memory.used, memory.total, memory.used / memory.total, memory.free, nan


def _sram(nvml: Nvml, device: Handle) -> Sequence[float]:
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(device, byref(status))
    return (status.bThresholdExceeded,)


FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
"""NVML_GPU_FABRIC_STATE_… in nvml.h."""


def _fabric(nvml: Nvml, device: Handle) -> Sequence[float]:
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(device, byref(info))
    state = info.state & 0xFF  # a byte in nvml.h, a word in pynvml
    if not state:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return [float(state == one) for one in FABRIC_STATES]


LINK_STATES = {0: "inactive", 1: "active", 2: "sleep"}
"""NVML_NVLINK_STATE_… in nvml.h."""


def _links(states: Iterable[int], nvml: Nvml) -> Sequence[float]:
    found = list(states)
    if not found:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return [float(found.count(state)) for state in LINK_STATES]


def _links_by_field(nvml: Nvml, device: Handle) -> Sequence[float]:
    fields = [(nvml.NVML_FI_DEV_NVLINK_GET_STATE, link) for link in range(NVLINKS)]
    answers = nvml.nvmlDeviceGetFieldValues(device, fields)
    return _links([one.value.uiVal for one in answers if one.nvmlReturn == nvml.NVML_SUCCESS], nvml)


def _links_one_by_one(nvml: Nvml, device: Handle) -> Sequence[float]:
    states = []
    for link in range(NVLINKS):
        try:
            states.append(nvml.nvmlDeviceGetNvLinkState(device, link))
        except nvml.NVMLError as error:  # a board without NVLink, or the end of its links
            if error.value not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT):
                raise
            break
    return _links(states, nvml)


LINK_ERRORS = {
    "replay": "ERROR_DL_REPLAY",
    "recovery": "ERROR_DL_RECOVERY",
    "crc": "ERROR_DL_CRC",
    "malformed_packet": "COUNT_MALFORMED_PACKET_ERRORS",
    "buffer_overrun": "COUNT_BUFFER_OVERRUN_ERRORS",
    "receive": "COUNT_RCV_ERRORS",
    "link_integrity": "COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
    "link_recovery_failed": "COUNT_LINK_RECOVERY_FAILED_EVENTS",
    "symbol": "COUNT_SYMBOL_ERRORS",
}
"""By link: the first three are Hopper's, the others Blackwell's. Older boards have totals, which are fields."""


def _link_errors(field: str) -> Ask:
    def ask(nvml: Nvml, device: Handle) -> Sequence[float]:
        fields = [(getattr(nvml, f"NVML_FI_DEV_NVLINK_{field}"), link) for link in range(NVLINKS)]
        answers = nvml.nvmlDeviceGetFieldValues(device, fields)
        counts = [_integer(nvml, one) for one in answers if one.nvmlReturn == nvml.NVML_SUCCESS]
        if not counts:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        return (float(sum(counts)),)

    return ask


def _integer(nvml: Nvml, answer: Any) -> int:
    wide = answer.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    return int(answer.value.ullVal if wide else answer.value.uiVal)


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
            ask = _call("nvmlDeviceGetMemoryErrorCounter", error_code, counter, code)
            yield Query("nvmlDeviceGetMemoryErrorCounter", (stream("zernel.gpu.ecc.errors", 1.0, attributes),), (ask,))


def _utilization(task: str) -> Stream:
    return stream("hw.gpu.utilization", PERCENT, {m.TASK: task})


def _engine(function: str, task: str) -> Query:
    return _query(function, _utilization(task), parts=[0])


def _clocks(function: str, metric: str, domains: Mapping[str, int]) -> Iterable[Query]:
    for domain, code in domains.items():
        yield _query(function, stream(metric, MHZ, {m.DOMAIN: domain}), of=code)


def _threshold(code: int, location: str, limit: str) -> Query:
    attributes = {m.LOCATION: location, m.LIMIT: limit}
    return _query("nvmlDeviceGetTemperatureThreshold", stream("hw.temperature.limit", 1.0, attributes), of=code)


def _pcie(code: int, direction: str) -> Query:
    attributes = {m.SOURCE: "driver", m.DIRECTION: direction}
    return _query("nvmlDeviceGetPcieThroughput", stream("zernel.gpu.pcie.throughput", KB, attributes), of=code)


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
BAR1 = _query(
    "nvmlDeviceGetBAR1MemoryInfo",
    stream("zernel.gpu.memory.bar1.usage"),
    stream("zernel.gpu.memory.bar1.limit"),
    parts=["bar1Used", "bar1Total"],
)

BOARD: tuple[Query, ...] = (
    _query(
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
    _query(
        "nvmlDeviceGetTemperatureV",
        stream("hw.temperature", 1.0, {m.LOCATION: "gpu"}),
        of=0,
        older="nvmlDeviceGetTemperature",
    ),
    _query("nvmlDeviceGetMarginTemperature", stream("zernel.gpu.temperature.margin")),
    _threshold(0, "gpu", "high.critical"),
    _threshold(1, "gpu", "throttled"),
    _threshold(2, "memory", "high.degraded"),
    _threshold(3, "gpu", "high.degraded"),
    _query("nvmlDeviceGetPowerUsage", stream("hw.power", MILLI)),
    _query("nvmlDeviceGetPowerManagementLimit", stream("zernel.gpu.power.limit", MILLI)),
    _query("nvmlDeviceGetEnforcedPowerLimit", stream("zernel.gpu.power.limit.enforced", MILLI)),
    _query("nvmlDeviceGetPowerManagementDefaultLimit", stream("zernel.gpu.power.limit.default", MILLI)),
    _query(
        "nvmlDeviceGetPowerManagementLimitConstraints",
        stream("zernel.gpu.power.limit.min", MILLI),
        stream("zernel.gpu.power.limit.max", MILLI),
        parts=[0, 1],
    ),
    *_clocks("nvmlDeviceGetClockInfo", "zernel.gpu.clock", _DOMAINS),
    *_clocks("nvmlDeviceGetMaxClockInfo", "zernel.gpu.clock.limit", _DOMAINS),
    *_clocks("nvmlDeviceGetApplicationsClock", "zernel.gpu.clock.application", {"graphics": 0, "memory": 2}),
    _query("nvmlDeviceGetPerformanceState", stream("zernel.gpu.performance_state")),
    Query(
        "nvmlDeviceGetCurrentClocksEventReasons",
        tuple(stream("zernel.gpu.throttle.active", 1.0, {m.REASON: reason}) for reason in THROTTLE_REASONS.values()),
        (_reasons("nvmlDeviceGetCurrentClocksEventReasons"), _reasons("nvmlDeviceGetCurrentClocksThrottleReasons")),
    ),
    Query("nvmlDeviceGetSramEccErrorStatus", (stream("zernel.gpu.ecc.sram.threshold_exceeded"),), (_sram,)),
    *_ecc("dram", 2),
    *_ecc("sram", 7),
    _query(
        "nvmlDeviceGetRowRemapperHistogram",
        *(stream("zernel.gpu.memory.row_remap.banks", 1.0, {m.AVAILABILITY: left}) for left in _BANKS),
        parts=_BANKS,
    ),
    _pcie(0, "transmit"),
    _pcie(1, "receive"),
    _query("nvmlDeviceGetCurrPcieLinkGeneration", stream("zernel.gpu.pcie.link.generation")),
    _query("nvmlDeviceGetMaxPcieLinkGeneration", stream("zernel.gpu.pcie.link.generation.limit")),
    _query("nvmlDeviceGetCurrPcieLinkWidth", stream("zernel.gpu.pcie.link.width")),
    _query("nvmlDeviceGetMaxPcieLinkWidth", stream("zernel.gpu.pcie.link.width.limit")),
    Query(
        "nvmlDeviceGetGpuFabricInfoV",
        tuple(stream("zernel.gpu.fabric.state", 1.0, {m.FABRIC_STATE: state}) for state in FABRIC_STATES.values()),
        (_fabric,),
    ),
    Query(
        "nvmlDeviceGetNvLinkState",
        tuple(stream("zernel.gpu.nvlink.links", 1.0, {m.LINK_STATE: state}) for state in LINK_STATES.values()),
        (_links_by_field, _links_one_by_one),
    ),
    *(
        Query(
            "nvmlDeviceGetFieldValues",
            (stream("zernel.gpu.nvlink.errors", 1.0, {m.ERROR: error}),),
            (_link_errors(field),),
        )
        for error, field in LINK_ERRORS.items()
    ),
    _query("nvmlDeviceGetFanSpeed", stream("hw.fan.speed_ratio", PERCENT)),
    _query("nvmlDeviceGetMigMode", stream("zernel.gpu.mig.enabled"), parts=[0]),
    _query("nvmlDeviceGetPersistenceMode", stream("zernel.gpu.persistence.enabled")),
    _query(
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
