"""Every metric of the receiver: name, unit, type, description, and whether it is enabled by default.

Names are those of OpenTelemetry's semantic conventions for hardware (`hw.*`), or else `zernel.gpu.*`.
"""

from dataclasses import dataclass
from typing import Literal

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


_ALL = (
    NvmlMetric("zernel.gpu.info", "", "gauge", "Always 1. Its attributes describe the GPU and its driver.", a.DETAILS),
    NvmlMetric("hw.status", "1", "up_down", "1 for the current state of the GPU, 0 for the others.", (a.STATE,)),
    NvmlMetric("hw.gpu.utilization", "1", "gauge", "Fraction of time in which the engine was busy.", (a.TASK,)),
    _off(
        "hw.gpu.io",
        "By",
        "sum",
        "Bytes transferred over PCIe. The driver counts with 32 bits: more than 4 GiB between two scrapes is lost.",
        (a.DIRECTION,),
    ),
    NvmlMetric(
        "zernel.gpu.engine.active",
        "1",
        "gauge",
        "Fraction of time in which the unit worked (GPM): SMs, tensor cores and pipes, averaged over all SMs.",
        (a.ENGINE,),
    ),
    NvmlMetric(
        "zernel.gpu.sm.occupancy", "1", "gauge", "Resident warps as a fraction of those that fit on the SMs (GPM)."
    ),
    NvmlMetric(
        "zernel.gpu.memory.bandwidth.utilization", "1", "gauge", "Fraction of time in which memory was read or written."
    ),
    NvmlMetric(
        "zernel.gpu.utilization.distribution", "1", "histogram", "Utilisation, from every sample of NVML.", (a.TASK,)
    ),
    NvmlMetric(
        "zernel.gpu.memory.bandwidth.utilization.distribution",
        "1",
        "histogram",
        "Utilisation of the memory bandwidth, from every sample of NVML.",
    ),
    NvmlMetric("zernel.gpu.power.distribution", "W", "histogram", "Power, from every sample of NVML."),
    NvmlMetric(
        "zernel.gpu.clock.distribution", "Hz", "histogram", "Clock frequency, from every sample of NVML.", (a.DOMAIN,)
    ),
    NvmlMetric("hw.gpu.memory.usage", "By", "up_down", "Memory in use."),
    NvmlMetric("hw.gpu.memory.limit", "By", "up_down", "Total memory of the board or MIG instance."),
    NvmlMetric("hw.gpu.memory.utilization", "1", "gauge", "Fraction of the memory in use."),
    NvmlMetric("zernel.gpu.memory.free", "By", "gauge", "Memory not in use."),
    NvmlMetric("zernel.gpu.memory.reserved", "By", "gauge", "Memory reserved by driver and firmware."),
    NvmlMetric(
        "zernel.gpu.memory.bar1.usage", "By", "up_down", "Mapped part of BAR1, the PCIe window to the GPU's memory."
    ),
    NvmlMetric("zernel.gpu.memory.bar1.limit", "By", "up_down", "Size of BAR1, the PCIe window to the GPU's memory."),
    NvmlMetric("hw.temperature", "Cel", "gauge", "Temperature of the GPU or its memory.", (a.LOCATION,)),
    NvmlMetric(
        "hw.temperature.limit",
        "Cel",
        "gauge",
        "Temperature threshold of the board, by type of limit.",
        (a.LOCATION, a.LIMIT),
    ),
    NvmlMetric(
        "zernel.gpu.temperature.margin", "Cel", "gauge", "Degrees left to the nearest slowdown threshold (T.Limit)."
    ),
    NvmlMetric(
        "zernel.gpu.temperature.margin.limit",
        "Cel",
        "gauge",
        "Threshold of the margin (T.Limit), by type of limit.",
        (a.LOCATION, a.LIMIT),
    ),
    NvmlMetric("hw.power", "W", "gauge", "Power drawn, averaged by the driver (over 1 s since Ampere)."),
    _off("zernel.gpu.power.instant", "W", "gauge", "Power drawn, not averaged."),
    NvmlMetric("zernel.gpu.memory.power", "W", "gauge", "Power drawn by the memory, averaged."),
    NvmlMetric(
        "zernel.gpu.module.power", "W", "gauge", "Power drawn by the whole module that contains the GPU, averaged."
    ),
    NvmlMetric("zernel.gpu.power.limit", "W", "gauge", "The configured power limit."),
    NvmlMetric("zernel.gpu.power.limit.enforced", "W", "gauge", "The lowest of all power limits in force."),
    _off("zernel.gpu.power.limit.default", "W", "gauge", "The power limit after a reset."),
    _off("zernel.gpu.power.limit.min", "W", "gauge", "The lowest power limit that can be set."),
    _off("zernel.gpu.power.limit.max", "W", "gauge", "The highest power limit that can be set."),
    NvmlMetric("hw.energy", "J", "sum", "Energy consumed.", (a.ENERGY_SOURCE,)),
    NvmlMetric("zernel.gpu.clock", "Hz", "gauge", "Clock frequency.", (a.DOMAIN,)),
    NvmlMetric("zernel.gpu.clock.limit", "Hz", "gauge", "The highest clock frequency.", (a.DOMAIN,)),
    _off(
        "zernel.gpu.clock.application",
        "Hz",
        "gauge",
        "Clock frequency set for applications. Some boards answer slowly.",
        (a.DOMAIN,),
    ),
    NvmlMetric("zernel.gpu.performance_state", "", "gauge", "P-state: 0 is the fastest, 15 the slowest."),
    NvmlMetric("zernel.gpu.throttle.active", "", "gauge", "1 while the reason reduces the clocks.", (a.REASON,)),
    NvmlMetric("zernel.gpu.throttle.time", "s", "sum", "Time during which the reason reduced the clocks.", (a.REASON,)),
    NvmlMetric(
        "zernel.gpu.violation.time", "s", "sum", "Time during which the policy reduced performance.", (a.POLICY,)
    ),
    NvmlMetric("hw.errors", "{error}", "sum", "ECC errors since the driver was loaded.", (a.ERROR,)),
    NvmlMetric("zernel.gpu.ecc.lifetime_errors", "{error}", "sum", "ECC errors over the board's lifetime.", (a.ERROR,)),
    _off(
        "zernel.gpu.ecc.errors", "{error}", "sum", "ECC errors by location.", (a.ERROR, a.ECC_COUNTER, a.ECC_LOCATION)
    ),
    NvmlMetric("zernel.gpu.ecc.enabled", "", "gauge", "1 if ECC is enabled."),
    NvmlMetric(
        "zernel.gpu.ecc.sram.threshold_exceeded",
        "",
        "gauge",
        "1 if SRAM errors exceed NVIDIA's threshold for replacing the board.",
    ),
    _off(
        "zernel.gpu.ecc.sram.errors",
        "{error}",
        "sum",
        "Uncorrected SRAM errors over the board's lifetime.",
        (a.ECC_LOCATION,),
    ),
    NvmlMetric("zernel.gpu.memory.retired_pages", "{page}", "sum", "Memory pages taken out of service.", (a.ERROR,)),
    NvmlMetric(
        "zernel.gpu.memory.retired_pages.pending", "", "gauge", "1 if pages are to be retired at the next reboot."
    ),
    NvmlMetric("zernel.gpu.memory.remapped_rows", "{row}", "sum", "Memory rows replaced by spare rows.", (a.ERROR,)),
    NvmlMetric("zernel.gpu.memory.row_remap.pending", "", "gauge", "1 if rows are to be replaced at the next reset."),
    NvmlMetric("zernel.gpu.memory.row_remap.failed", "", "gauge", "1 if a row could not be replaced."),
    NvmlMetric(
        "zernel.gpu.memory.row_remap.banks",
        "{bank}",
        "up_down",
        "Memory banks by the number of spare rows left.",
        (a.AVAILABILITY,),
    ),
    NvmlMetric(
        "zernel.gpu.repair.pending", "", "gauge", "1 if a unit is to be repaired at the next reset.", (a.REPAIR,)
    ),
    NvmlMetric(
        "zernel.gpu.xid.errors",
        "{error}",
        "sum",
        "XID errors by code, since the collector's start.",
        (a.XID, a.GPU_INSTANCE),
    ),
    NvmlMetric(
        "zernel.gpu.xid.last_time",
        "s",
        "gauge",
        "Unix time of the last XID error with the code.",
        (a.XID, a.GPU_INSTANCE),
    ),
    NvmlMetric("zernel.gpu.xid.last", "", "gauge", "Code of the last XID error, 0 for none."),
    _off(
        "zernel.gpu.recovery_action",
        "",
        "gauge",
        "Recovery action that the driver requests: 0 for none, 1 for a reset (see nvml.h).",
    ),
    NvmlMetric(
        "zernel.gpu.pcie.throughput",
        "By/s",
        "gauge",
        "PCIe traffic: since the last scrape (profiler, by GPM), or over 20 ms in which the query blocks (driver).",
        (a.DIRECTION, a.SOURCE),
    ),
    NvmlMetric(
        "zernel.gpu.nvlink.throughput",
        "By/s",
        "gauge",
        "NVLink traffic of all links since the last scrape: by GPM (profiler), or without GPM by counters (driver).",
        (a.DIRECTION, a.SOURCE),
    ),
    _off(
        "zernel.gpu.nvlink.link.throughput",
        "By/s",
        "gauge",
        "NVLink traffic of one link since the last scrape, up to NVLink 4.",
        (a.DIRECTION, a.SOURCE, a.LINK),
    ),
    NvmlMetric(
        "zernel.gpu.c2c.throughput",
        "By/s",
        "gauge",
        "Traffic between the GPU and a Grace CPU (GPM).",
        (a.DIRECTION, a.SOURCE),
    ),
    NvmlMetric(
        "zernel.gpu.c2c.errors", "{error}", "sum", "Errors of all links between the GPU and a Grace CPU.", (a.ERROR,)
    ),
    NvmlMetric("zernel.gpu.pcie.replays", "{replay}", "sum", "PCIe packets that were retransmitted."),
    NvmlMetric("zernel.gpu.pcie.errors", "{error}", "sum", "PCIe errors.", (a.ERROR,)),
    NvmlMetric("zernel.gpu.pcie.link.generation", "", "gauge", "PCIe generation in use."),
    NvmlMetric("zernel.gpu.pcie.link.generation.limit", "", "gauge", "Highest possible PCIe generation."),
    NvmlMetric("zernel.gpu.pcie.link.width", "{lane}", "gauge", "PCIe lanes in use."),
    NvmlMetric("zernel.gpu.pcie.link.width.limit", "{lane}", "gauge", "Highest possible number of PCIe lanes."),
    NvmlMetric(
        "zernel.gpu.nvlink.io", "By", "sum", "NVLink payload of all links, without protocol overhead.", (a.DIRECTION,)
    ),
    NvmlMetric(
        "zernel.gpu.nvlink.packet.io",
        "By",
        "sum",
        "Bytes in packets of all links, as NVLink 5 counts them.",
        (a.DIRECTION,),
    ),
    NvmlMetric("zernel.gpu.nvlink.errors", "{error}", "sum", "NVLink errors, summed over all links.", (a.ERROR,)),
    NvmlMetric(
        "zernel.gpu.nvlink.bit_error_rate", "1", "gauge", "Errors per bit of the worst link (NVLink 5).", (a.ERROR,)
    ),
    NvmlMetric("zernel.gpu.nvlink.links", "{link}", "up_down", "NVLink links by state.", (a.LINK_STATE,)),
    NvmlMetric(
        "zernel.gpu.fabric.state",
        "",
        "gauge",
        "1 for the current state of the GPU's registration with the NVLink fabric, 0 for the others.",
        (a.FABRIC_STATE,),
    ),
    NvmlMetric(
        "zernel.gpu.fabric.problem",
        "",
        "gauge",
        "1 while the GPU, which has registered with the NVLink fabric, has the problem.",
        (a.FABRIC_PROBLEM,),
    ),
    NvmlMetric("hw.fan.speed_ratio", "1", "gauge", "Intended fan speed, as a fraction of the maximum."),
    NvmlMetric("zernel.gpu.vgpu.licensed", "", "gauge", "1 if the GPU is a vGPU with a license, else 0."),
    NvmlMetric("zernel.gpu.mig.enabled", "", "gauge", "1 if MIG is enabled."),
    NvmlMetric("zernel.gpu.persistence.enabled", "", "gauge", "1 if persistence mode is enabled."),
    _off(
        "zernel.gpu.compute_mode",
        "",
        "gauge",
        "1 for the current compute mode, which limits the processes that may use the GPU; 0 for the others.",
        (a.COMPUTE_MODE,),
    ),
    _off("zernel.gpu.encoder.sessions", "{session}", "gauge", "Video encoder sessions."),
    _off("zernel.gpu.encoder.frame_rate", "{frame}/s", "gauge", "Frames encoded per second, averaged over sessions."),
    _off("zernel.gpu.encoder.latency", "s", "gauge", "Time to encode a frame, averaged over sessions."),
    _off("zernel.gpu.frame_capture.sessions", "{session}", "gauge", "Frame buffer capture sessions."),
    _off(
        "zernel.gpu.frame_capture.frame_rate",
        "{frame}/s",
        "gauge",
        "Frames captured per second, averaged over sessions.",
    ),
    _off("zernel.gpu.frame_capture.latency", "s", "gauge", "Time to capture a frame, averaged over sessions."),
    NvmlMetric(
        "zernel.gpu.processes",
        "{process}",
        "up_down",
        "Processes on the GPU by type. A process of two types is counted twice.",
        (a.PROCESS_TYPE,),
    ),
    NvmlMetric(
        "zernel.gpu.process.memory.usage",
        "By",
        "up_down",
        "GPU memory used by a process.",
        (a.PID, a.EXECUTABLE, a.PID_NAMESPACE),
    ),
    NvmlMetric(
        "zernel.gpu.process.utilization",
        "1",
        "gauge",
        "Utilisation by a process: the mean of NVML's samples since the last scrape.",
        (a.PID, a.EXECUTABLE, a.PID_NAMESPACE, a.ENGINE),
    ),
    NvmlMetric(
        "zernel.nvml.query.duration", "s", "histogram", "Time that the driver took to answer a query.", (a.QUERY,)
    ),
)

METRICS = {metric.name: metric for metric in _ALL}
"""The metrics by name."""
