"""Every metric of the receiver: name, unit, type, description, and whether it is enabled by default.

Names are those of OpenTelemetry's semantic conventions for hardware (`hw.*`), or else `zernel.gpu.*`.
"""

from dataclasses import dataclass
from typing import Literal

from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.points import attributes as a

MetricKind = Literal["gauge", "sum", "up_down", "histogram"]


@dataclass(frozen=True, slots=True)
class NvmlMetric:
    """A metric. Sums are cumulative, histograms have delta temporality."""

    name: str
    unit: str
    kind: MetricKind
    description: str
    attributes: tuple[str, ...] = ()
    """The attributes of its points, besides those of every point."""
    enabled: bool = True
    """Whether it is sent unless the configuration disables it."""


def _off(name: str, unit: str, kind: MetricKind, description: str, attributes: tuple[str, ...] = ()) -> NvmlMetric:
    return NvmlMetric(name, unit, kind, description, attributes, enabled=False)


QUERY_DURATION = "zernel.nvml.query.duration"
_ALL = (
    NvmlMetric(semconv.GPU_INFO, "", "gauge", "Always 1. Its attributes describe the GPU and its driver.", a.DETAILS),
    NvmlMetric("hw.status", "1", "up_down", "1 for the current state of the GPU, 0 for the others.", (a.STATE,)),
    _off(
        *(semconv.GPU_HEALTH, "", "gauge"),
        "Result of a health check, with DCGM's numbers: 0 for a pass, 10 for a warning, 20 for a failure.",
        (semconv.GPU_HEALTH_WATCH, semconv.GPU_HEALTH_ERROR),
    ),
    NvmlMetric("hw.gpu.utilization", "1", "gauge", "Fraction of time in which the engine was busy.", (a.TASK,)),
    _off(
        *("hw.gpu.io", "By", "sum"),
        "Bytes transferred over PCIe. The driver counts with 32 bits: more than 4 GiB between two scrapes is lost.",
        (a.DIRECTION,),
    ),
    NvmlMetric(
        *(semconv.GPU_ENGINE_ACTIVE, "1", "gauge"),
        "Fraction of time in which the unit worked (GPM): SMs, tensor cores and pipes, averaged over all SMs.",
        (semconv.GPU_ENGINE,),
    ),
    NvmlMetric(
        semconv.GPU_SM_OCCUPANCY, "1", "gauge", "Resident warps as a fraction of those that fit on the SMs (GPM)."
    ),
    NvmlMetric(
        semconv.GPU_MEMORY_BANDWIDTH_UTILIZATION, "1", "gauge", "Fraction of time in which memory was read or written."
    ),
    NvmlMetric(
        semconv.GPU_UTILIZATION_DISTRIBUTION, "1", "histogram", "Utilisation, from every sample of NVML.", (a.TASK,)
    ),
    NvmlMetric(
        *(semconv.GPU_MEMORY_BANDWIDTH_UTILIZATION_DISTRIBUTION, "1", "histogram"),
        "Utilisation of the memory bandwidth, from every sample of NVML.",
    ),
    NvmlMetric(semconv.GPU_POWER_DISTRIBUTION, "W", "histogram", "Power, from every sample of NVML."),
    NvmlMetric(
        *(semconv.GPU_CLOCK_DISTRIBUTION, "Hz", "histogram"),
        "Clock frequency, from every sample of NVML.",
        (semconv.GPU_CLOCK_DOMAIN,),
    ),
    NvmlMetric("hw.gpu.memory.usage", "By", "up_down", "Memory in use."),
    NvmlMetric("hw.gpu.memory.limit", "By", "up_down", "Total memory of the board or MIG instance."),
    NvmlMetric("hw.gpu.memory.utilization", "1", "gauge", "Fraction of the memory in use."),
    NvmlMetric(semconv.GPU_MEMORY_FREE, "By", "gauge", "Memory not in use."),
    NvmlMetric(semconv.GPU_MEMORY_RESERVED, "By", "gauge", "Memory reserved by driver and firmware."),
    NvmlMetric(
        semconv.GPU_MEMORY_BAR1_USAGE, "By", "up_down", "Mapped part of BAR1, the PCIe window to the GPU's memory."
    ),
    NvmlMetric(semconv.GPU_MEMORY_BAR1_LIMIT, "By", "up_down", "Size of BAR1, the PCIe window to the GPU's memory."),
    NvmlMetric("hw.temperature", "Cel", "gauge", "Temperature of the GPU or its memory.", (a.LOCATION,)),
    NvmlMetric(
        *("hw.temperature.limit", "Cel", "gauge"),
        "Temperature threshold of the board, by type of limit.",
        (a.LOCATION, a.LIMIT),
    ),
    NvmlMetric(
        semconv.GPU_TEMPERATURE_MARGIN, "Cel", "gauge", "Degrees left to the nearest slowdown threshold (T.Limit)."
    ),
    NvmlMetric(
        *(semconv.GPU_TEMPERATURE_MARGIN_LIMIT, "Cel", "gauge"),
        "Threshold of the margin (T.Limit), by type of limit.",
        (a.LOCATION, a.LIMIT),
    ),
    NvmlMetric("hw.power", "W", "gauge", "Power drawn, averaged by the driver (over 1 s since Ampere)."),
    _off(semconv.GPU_POWER_INSTANT, "W", "gauge", "Power drawn, not averaged."),
    NvmlMetric(semconv.GPU_MEMORY_POWER, "W", "gauge", "Power drawn by the memory, averaged."),
    NvmlMetric(
        semconv.GPU_MODULE_POWER, "W", "gauge", "Power drawn by the whole module that contains the GPU, averaged."
    ),
    NvmlMetric(semconv.GPU_POWER_LIMIT, "W", "gauge", "The configured power limit."),
    NvmlMetric(semconv.GPU_POWER_LIMIT_ENFORCED, "W", "gauge", "The lowest of all power limits in force."),
    _off(semconv.GPU_POWER_LIMIT_DEFAULT, "W", "gauge", "The power limit after a reset."),
    _off(semconv.GPU_POWER_LIMIT_MIN, "W", "gauge", "The lowest power limit that can be set."),
    _off(semconv.GPU_POWER_LIMIT_MAX, "W", "gauge", "The highest power limit that can be set."),
    NvmlMetric("hw.energy", "J", "sum", "Energy consumed.", (semconv.GPU_ENERGY_SOURCE,)),
    NvmlMetric(semconv.GPU_CLOCK, "Hz", "gauge", "Clock frequency.", (semconv.GPU_CLOCK_DOMAIN,)),
    NvmlMetric(semconv.GPU_CLOCK_LIMIT, "Hz", "gauge", "The highest clock frequency.", (semconv.GPU_CLOCK_DOMAIN,)),
    _off(
        *(semconv.GPU_CLOCK_APPLICATION, "Hz", "gauge"),
        "Clock frequency set for applications. Some boards answer slowly.",
        (semconv.GPU_CLOCK_DOMAIN,),
    ),
    NvmlMetric(semconv.GPU_PERFORMANCE_STATE, "", "gauge", "P-state: 0 is the fastest, 15 the slowest."),
    NvmlMetric(
        *(semconv.GPU_THROTTLE_ACTIVE, "", "gauge"),
        "1 while the reason reduces the clocks.",
        (semconv.GPU_THROTTLE_REASON,),
    ),
    NvmlMetric(
        *(semconv.GPU_THROTTLE_TIME, "s", "sum"),
        "Time during which the reason reduced the clocks.",
        (semconv.GPU_THROTTLE_REASON,),
    ),
    NvmlMetric(
        *(semconv.GPU_VIOLATION_TIME, "s", "sum"),
        "Time during which the policy reduced performance.",
        (semconv.GPU_VIOLATION_POLICY,),
    ),
    NvmlMetric("hw.errors", "{error}", "sum", "ECC errors since the driver was loaded.", (a.ERROR,)),
    NvmlMetric(semconv.GPU_ECC_LIFETIME_ERRORS, "{error}", "sum", "ECC errors over the board's lifetime.", (a.ERROR,)),
    _off(
        *(semconv.GPU_ECC_ERRORS, "{error}", "sum"),
        "ECC errors by location.",
        (a.ERROR, semconv.GPU_ECC_COUNTER, semconv.GPU_ECC_LOCATION),
    ),
    NvmlMetric(semconv.GPU_ECC_ENABLED, "", "gauge", "1 if ECC is enabled."),
    NvmlMetric(
        *(semconv.GPU_ECC_SRAM_THRESHOLD_EXCEEDED, "", "gauge"),
        "1 if SRAM errors exceed NVIDIA's threshold for replacing the board.",
    ),
    _off(
        *(semconv.GPU_ECC_SRAM_ERRORS, "{error}", "sum"),
        "Uncorrected SRAM errors over the board's lifetime.",
        (semconv.GPU_ECC_LOCATION,),
    ),
    NvmlMetric(semconv.GPU_MEMORY_RETIRED_PAGES, "{page}", "sum", "Memory pages taken out of service.", (a.ERROR,)),
    NvmlMetric(
        semconv.GPU_MEMORY_RETIRED_PAGES_PENDING, "", "gauge", "1 if pages are to be retired at the next reboot."
    ),
    NvmlMetric(semconv.GPU_MEMORY_REMAPPED_ROWS, "{row}", "sum", "Memory rows replaced by spare rows.", (a.ERROR,)),
    NvmlMetric(semconv.GPU_MEMORY_ROW_REMAP_PENDING, "", "gauge", "1 if rows are to be replaced at the next reset."),
    NvmlMetric(semconv.GPU_MEMORY_ROW_REMAP_FAILED, "", "gauge", "1 if a row could not be replaced."),
    NvmlMetric(
        *(semconv.GPU_MEMORY_ROW_REMAP_BANKS, "{bank}", "up_down"),
        "Memory banks by the number of spare rows left.",
        (semconv.GPU_ROW_REMAP_AVAILABILITY,),
    ),
    NvmlMetric(
        *(semconv.GPU_REPAIR_PENDING, "", "gauge"),
        "1 if a unit is to be repaired at the next reset.",
        (semconv.GPU_REPAIR_UNIT,),
    ),
    NvmlMetric(
        *(semconv.GPU_XID_ERRORS, "{error}", "sum"),
        "XID errors by code, since the collector's start.",
        (semconv.GPU_XID_CODE, semconv.GPU_MIG_GPU_INSTANCE),
    ),
    NvmlMetric(
        *(semconv.GPU_XID_LAST_TIME, "s", "gauge"),
        "Unix time of the last XID error with the code.",
        (semconv.GPU_XID_CODE, semconv.GPU_MIG_GPU_INSTANCE),
    ),
    NvmlMetric(semconv.GPU_XID_LAST, "", "gauge", "Code of the last XID error, 0 for none."),
    _off(
        *(semconv.GPU_RECOVERY_ACTION, "", "gauge"),
        "Recovery action that the driver requests: 0 for none, 1 for a reset (see nvml.h).",
    ),
    NvmlMetric(
        *(semconv.GPU_PCIE_THROUGHPUT, "By/s", "gauge"),
        "PCIe traffic: since the last scrape (profiler, by GPM), or over 20 ms in which the query blocks (driver).",
        (a.DIRECTION, semconv.GPU_COUNTER_SOURCE),
    ),
    NvmlMetric(
        *(semconv.GPU_NVLINK_THROUGHPUT, "By/s", "gauge"),
        "NVLink traffic of all links since the last scrape: by GPM (profiler), or without GPM by counters (driver).",
        (a.DIRECTION, semconv.GPU_COUNTER_SOURCE),
    ),
    _off(
        *(semconv.GPU_NVLINK_LINK_THROUGHPUT, "By/s", "gauge"),
        "NVLink traffic of one link since the last scrape, up to NVLink 4.",
        (a.DIRECTION, semconv.GPU_COUNTER_SOURCE, semconv.GPU_NVLINK_LINK),
    ),
    NvmlMetric(
        *(semconv.GPU_C2C_THROUGHPUT, "By/s", "gauge"),
        "Traffic between the GPU and a Grace CPU (GPM).",
        (a.DIRECTION, semconv.GPU_COUNTER_SOURCE),
    ),
    NvmlMetric(
        semconv.GPU_C2C_ERRORS, "{error}", "sum", "Errors of all links between the GPU and a Grace CPU.", (a.ERROR,)
    ),
    NvmlMetric(semconv.GPU_PCIE_REPLAYS, "{replay}", "sum", "PCIe packets that were retransmitted."),
    NvmlMetric(semconv.GPU_PCIE_ERRORS, "{error}", "sum", "PCIe errors.", (a.ERROR,)),
    NvmlMetric(semconv.GPU_PCIE_LINK_GENERATION, "", "gauge", "PCIe generation in use."),
    NvmlMetric(semconv.GPU_PCIE_LINK_GENERATION_LIMIT, "", "gauge", "Highest possible PCIe generation."),
    NvmlMetric(semconv.GPU_PCIE_LINK_WIDTH, "{lane}", "gauge", "PCIe lanes in use."),
    NvmlMetric(semconv.GPU_PCIE_LINK_WIDTH_LIMIT, "{lane}", "gauge", "Highest possible number of PCIe lanes."),
    NvmlMetric(
        semconv.GPU_NVLINK_IO, "By", "sum", "NVLink payload of all links, without protocol overhead.", (a.DIRECTION,)
    ),
    NvmlMetric(
        *(semconv.GPU_NVLINK_PACKET_IO, "By", "sum"),
        "Bytes in packets of all links, as NVLink 5 counts them.",
        (a.DIRECTION,),
    ),
    NvmlMetric(semconv.GPU_NVLINK_ERRORS, "{error}", "sum", "NVLink errors, summed over all links.", (a.ERROR,)),
    NvmlMetric(
        semconv.GPU_NVLINK_BIT_ERROR_RATE, "1", "gauge", "Errors per bit of the worst link (NVLink 5).", (a.ERROR,)
    ),
    NvmlMetric(semconv.GPU_NVLINK_LINKS, "{link}", "up_down", "NVLink links by state.", (semconv.GPU_NVLINK_STATE,)),
    _off(
        *(semconv.GPU_P2P_STATUS, "", "gauge"),
        "Access to the memory of another GPU over NVLink, with NVML's numbers: 0 if it works, else the obstacle.",
        (semconv.GPU_P2P_PEER, semconv.GPU_P2P_STATE),
    ),
    NvmlMetric(
        *(semconv.GPU_FABRIC_STATE, "", "gauge"),
        "1 for the current state of the GPU's registration with the NVLink fabric, 0 for the others.",
        (semconv.GPU_FABRIC_STATE,),
    ),
    NvmlMetric(
        *(semconv.GPU_FABRIC_PROBLEM, "", "gauge"),
        "1 while the GPU, which has registered with the NVLink fabric, has the problem.",
        (semconv.GPU_FABRIC_PROBLEM_TYPE,),
    ),
    NvmlMetric("hw.fan.speed_ratio", "1", "gauge", "Intended fan speed, as a fraction of the maximum."),
    NvmlMetric(semconv.GPU_VGPU_LICENSED, "", "gauge", "1 if the GPU is a vGPU with a license, else 0."),
    NvmlMetric(semconv.GPU_MIG_ENABLED, "", "gauge", "1 if MIG is enabled."),
    NvmlMetric(semconv.GPU_PERSISTENCE_ENABLED, "", "gauge", "1 if persistence mode is enabled."),
    _off(
        *(semconv.GPU_COMPUTE_MODE, "", "gauge"),
        "1 for the current compute mode, which limits the processes that may use the GPU; 0 for the others.",
        (semconv.GPU_COMPUTE_MODE,),
    ),
    _off(semconv.GPU_ENCODER_SESSIONS, "{session}", "gauge", "Video encoder sessions."),
    _off(semconv.GPU_ENCODER_FRAME_RATE, "{frame}/s", "gauge", "Frames encoded per second, averaged over sessions."),
    _off(semconv.GPU_ENCODER_LATENCY, "s", "gauge", "Time to encode a frame, averaged over sessions."),
    _off(semconv.GPU_FRAME_CAPTURE_SESSIONS, "{session}", "gauge", "Frame buffer capture sessions."),
    _off(
        *(semconv.GPU_FRAME_CAPTURE_FRAME_RATE, "{frame}/s", "gauge"),
        "Frames captured per second, averaged over sessions.",
    ),
    _off(semconv.GPU_FRAME_CAPTURE_LATENCY, "s", "gauge", "Time to capture a frame, averaged over sessions."),
    NvmlMetric(
        *(semconv.GPU_PROCESSES, "{process}", "up_down"),
        "Processes on the GPU by type. A process of two types is counted twice.",
        (semconv.GPU_PROCESS_TYPE,),
    ),
    NvmlMetric(
        *(semconv.GPU_PROCESS_MEMORY_USAGE, "By", "up_down"),
        "GPU memory used by a process.",
        (a.PID, a.EXECUTABLE, semconv.PROCESS_PID_NAMESPACE),
    ),
    NvmlMetric(
        *(semconv.GPU_PROCESS_UTILIZATION, "1", "gauge"),
        "Utilisation by a process: the mean of NVML's samples since the last scrape.",
        (a.PID, a.EXECUTABLE, semconv.PROCESS_PID_NAMESPACE, semconv.GPU_ENGINE),
    ),
    NvmlMetric(QUERY_DURATION, "s", "histogram", "Time that the driver took to answer a query.", (a.QUERY,)),
)

METRICS = {metric.name: metric for metric in _ALL}
"""The metrics by name."""
