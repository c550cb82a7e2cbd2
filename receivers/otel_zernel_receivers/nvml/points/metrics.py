"""Every metric of the receiver: its name, unit and type, and whether it is on unless the configuration says otherwise.

Names are those of OpenTelemetry's semantic conventions for hardware (`hw.*`) where they have one, else `zernel.gpu.*`.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "sum", "up_down", "histogram"]

TASK = "hw.gpu.task"
LOCATION = "hw.sensor_location"
LIMIT = "hw.limit_type"
STATE = "hw.state"
ERROR = "error.type"
DIRECTION = "network.io.direction"
DOMAIN = "zernel.gpu.clock.domain"
ENGINE = "zernel.gpu.engine"
REASON = "zernel.gpu.throttle.reason"
POLICY = "zernel.gpu.violation.policy"
ECC_COUNTER = "zernel.gpu.ecc.counter"
ECC_LOCATION = "zernel.gpu.ecc.location"
SOURCE = "zernel.gpu.counter.source"
ENERGY_SOURCE = "zernel.gpu.energy.source"
AVAILABILITY = "zernel.gpu.row_remap.availability"
LINK_STATE = "zernel.gpu.nvlink.state"
FABRIC_STATE = "zernel.gpu.fabric.state"
XID = "zernel.gpu.xid.code"
GPU_INSTANCE = "zernel.gpu.mig.gpu_instance"
PROCESS_TYPE = "zernel.gpu.process.type"
PID = "process.pid"
EXECUTABLE = "process.executable.name"
PID_NAMESPACE = "zernel.process.pid_namespace"
COMPUTE_MODE = "zernel.gpu.compute_mode"
REPAIR = "zernel.gpu.repair.unit"
QUERY = "zernel.nvml.query"


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric is. Sums are cumulative, histograms deltas."""

    name: str
    unit: str
    kind: Kind
    description: str
    attributes: tuple[str, ...] = ()
    """Of its points, besides `hw.id`."""
    enabled: bool = True


def _off(name: str, unit: str, kind: Kind, description: str, attributes: tuple[str, ...] = ()) -> Metric:
    return Metric(name, unit, kind, description, attributes, enabled=False)


_ALL = (
    Metric("hw.status", "1", "up_down", "1 for the state the GPU is in, 0 for the others.", (STATE,)),
    Metric("hw.gpu.utilization", "1", "gauge", "Share of time in which an engine was busy.", (TASK,)),
    Metric("hw.gpu.io", "By", "sum", "Bytes over PCIe.", (DIRECTION,)),
    Metric(
        "zernel.gpu.memory.bandwidth.utilization", "1", "gauge", "Share of time in which memory was read or written."
    ),
    Metric("zernel.gpu.utilization.distribution", "1", "histogram", "Utilisation: every sample of NVML's.", (TASK,)),
    Metric(
        "zernel.gpu.memory.bandwidth.utilization.distribution",
        "1",
        "histogram",
        "Utilisation of the memory's bandwidth: every sample of NVML's.",
    ),
    Metric("zernel.gpu.power.distribution", "W", "histogram", "Power: every sample of NVML's."),
    Metric("zernel.gpu.clock.distribution", "Hz", "histogram", "Clocks: every sample of NVML's.", (DOMAIN,)),
    Metric("hw.gpu.memory.usage", "By", "up_down", "Memory in use."),
    Metric("hw.gpu.memory.limit", "By", "up_down", "Memory of the board or MIG instance."),
    Metric("hw.gpu.memory.utilization", "1", "gauge", "Share of the memory in use."),
    Metric("zernel.gpu.memory.free", "By", "gauge", "Memory not in use."),
    Metric("zernel.gpu.memory.reserved", "By", "gauge", "Memory kept by driver and firmware."),
    Metric("zernel.gpu.memory.bar1.usage", "By", "up_down", "Mapped part of the window to the GPU's memory (BAR1)."),
    Metric("zernel.gpu.memory.bar1.limit", "By", "up_down", "Size of the window to the GPU's memory (BAR1)."),
    Metric("hw.temperature", "Cel", "gauge", "Temperature of GPU and memory.", (LOCATION,)),
    Metric("hw.temperature.limit", "Cel", "gauge", "Temperatures at which the board acts.", (LOCATION, LIMIT)),
    Metric("zernel.gpu.temperature.margin", "Cel", "gauge", "Degrees left to the limit (T.Limit)."),
    Metric(
        "zernel.gpu.temperature.margin.limit", "Cel", "gauge", "Margins at which the board acts.", (LOCATION, LIMIT)
    ),
    Metric("hw.power", "W", "gauge", "Power drawn, as the driver averages it (1 s since Ampere)."),
    _off("zernel.gpu.power.instant", "W", "gauge", "Power drawn at this moment."),
    Metric("zernel.gpu.memory.power", "W", "gauge", "Power drawn by the memory, averaged."),
    Metric("zernel.gpu.module.power", "W", "gauge", "Power drawn by the module the GPU shares, averaged."),
    Metric("zernel.gpu.power.limit", "W", "gauge", "The power limit that is set."),
    Metric("zernel.gpu.power.limit.enforced", "W", "gauge", "The lowest of all limits in force."),
    _off("zernel.gpu.power.limit.default", "W", "gauge", "The power limit after a reset."),
    _off("zernel.gpu.power.limit.min", "W", "gauge", "The lowest power limit that can be set."),
    _off("zernel.gpu.power.limit.max", "W", "gauge", "The highest power limit that can be set."),
    Metric("hw.energy", "J", "sum", "Energy used.", (ENERGY_SOURCE,)),
    Metric("zernel.gpu.clock", "Hz", "gauge", "Clocks.", (DOMAIN,)),
    Metric("zernel.gpu.clock.limit", "Hz", "gauge", "The highest clocks.", (DOMAIN,)),
    _off("zernel.gpu.clock.application", "Hz", "gauge", "Clocks for applications. Slow on some boards.", (DOMAIN,)),
    Metric("zernel.gpu.performance_state", "", "gauge", "P-state: 0 is the fastest, 15 the slowest."),
    Metric("zernel.gpu.throttle.active", "", "gauge", "1 while the reason holds the clocks down.", (REASON,)),
    Metric("zernel.gpu.throttle.time", "s", "sum", "Time for which the reason held the clocks down.", (REASON,)),
    Metric("zernel.gpu.violation.time", "s", "sum", "Time for which the policy kept performance down.", (POLICY,)),
    Metric("hw.errors", "{error}", "sum", "ECC errors.", (ERROR, ECC_COUNTER)),
    _off("zernel.gpu.ecc.errors", "{error}", "sum", "ECC errors by place.", (ERROR, ECC_COUNTER, ECC_LOCATION)),
    Metric("zernel.gpu.ecc.enabled", "", "gauge", "1 if ECC is on."),
    Metric("zernel.gpu.ecc.sram.threshold_exceeded", "", "gauge", "1 once SRAM errors call for a new board."),
    _off(
        "zernel.gpu.ecc.sram.errors", "{error}", "sum", "Uncorrected SRAM errors of the board's life.", (ECC_LOCATION,)
    ),
    Metric("zernel.gpu.memory.retired_pages", "{page}", "sum", "Pages taken out of service.", (ERROR,)),
    Metric("zernel.gpu.memory.retired_pages.pending", "{page}", "gauge", "1 if pages wait for a reboot to be retired."),
    Metric("zernel.gpu.memory.remapped_rows", "{row}", "sum", "Rows replaced by spare ones.", (ERROR,)),
    Metric("zernel.gpu.memory.row_remap.pending", "", "gauge", "1 if rows wait for a reset to be replaced."),
    Metric("zernel.gpu.memory.row_remap.failed", "", "gauge", "1 if a row could not be replaced."),
    Metric("zernel.gpu.memory.row_remap.banks", "{bank}", "up_down", "Banks by spare rows left.", (AVAILABILITY,)),
    Metric("zernel.gpu.repair.pending", "", "gauge", "1 if such a unit waits for a reset to be repaired.", (REPAIR,)),
    Metric(
        "zernel.gpu.xid.errors",
        "{error}",
        "sum",
        "XID errors since the collector's start, by code.",
        (XID, GPU_INSTANCE),
    ),
    Metric("zernel.gpu.xid.last_time", "s", "gauge", "Unix time of the last XID of a code.", (XID, GPU_INSTANCE)),
    _off("zernel.gpu.xid.last", "", "gauge", "The code of the last XID error; 0 for none."),
    _off("zernel.gpu.recovery_action", "", "gauge", "What the driver asks for; 0 is nothing, 1 a reset (nvml.h)."),
    Metric(
        "zernel.gpu.pcie.throughput", "By/s", "gauge", "PCIe traffic in 20 ms. The driver waits.", (DIRECTION, SOURCE)
    ),
    Metric("zernel.gpu.pcie.replays", "{replay}", "sum", "PCIe packets sent again."),
    Metric("zernel.gpu.pcie.errors", "{error}", "sum", "PCIe errors.", (ERROR,)),
    Metric("zernel.gpu.pcie.link.generation", "", "gauge", "PCIe generation in use."),
    Metric("zernel.gpu.pcie.link.generation.limit", "", "gauge", "PCIe generation possible."),
    Metric("zernel.gpu.pcie.link.width", "{lane}", "gauge", "PCIe lanes in use."),
    Metric("zernel.gpu.pcie.link.width.limit", "{lane}", "gauge", "PCIe lanes possible."),
    Metric("zernel.gpu.nvlink.io", "By", "sum", "NVLink traffic of all links, without protocol.", (DIRECTION,)),
    Metric("zernel.gpu.nvlink.errors", "{error}", "sum", "NVLink errors of all links.", (ERROR,)),
    Metric("zernel.gpu.nvlink.links", "{link}", "up_down", "NVLink links by state.", (LINK_STATE,)),
    Metric(
        "zernel.gpu.fabric.state", "", "gauge", "1 for the state of the registration with the fabric.", (FABRIC_STATE,)
    ),
    Metric("hw.fan.speed_ratio", "1", "gauge", "Speed the fans are driven at."),
    Metric("zernel.gpu.mig.enabled", "", "gauge", "1 if MIG is on."),
    Metric("zernel.gpu.persistence.enabled", "", "gauge", "1 if persistence mode is on."),
    _off("zernel.gpu.compute_mode", "", "gauge", "1 for the mode that says who may compute.", (COMPUTE_MODE,)),
    _off("zernel.gpu.encoder.sessions", "{session}", "gauge", "Video encoder sessions."),
    _off("zernel.gpu.encoder.frame_rate", "{frame}/s", "gauge", "Frames encoded a second, averaged over sessions."),
    _off("zernel.gpu.encoder.latency", "s", "gauge", "Time to encode a frame, averaged over sessions."),
    _off("zernel.gpu.frame_capture.sessions", "{session}", "gauge", "Frame buffer capture sessions."),
    _off("zernel.gpu.frame_capture.frame_rate", "{frame}/s", "gauge", "Frames captured a second, averaged."),
    _off("zernel.gpu.frame_capture.latency", "s", "gauge", "Time to capture a frame, averaged."),
    Metric(
        "zernel.gpu.processes",
        "{process}",
        "up_down",
        "Processes on the GPU; one of two types counts as both.",
        (PROCESS_TYPE,),
    ),
    Metric(
        "zernel.gpu.process.memory.usage", "By", "up_down", "GPU memory of a process.", (PID, EXECUTABLE, PID_NAMESPACE)
    ),
    Metric(
        "zernel.gpu.process.utilization",
        "1",
        "gauge",
        "Utilisation by a process: the mean of NVML's samples since the last scrape.",
        (PID, EXECUTABLE, PID_NAMESPACE, ENGINE),
    ),
    Metric("zernel.nvml.query.duration", "s", "histogram", "What the driver took to answer.", (QUERY,)),
)

METRICS = {metric.name: metric for metric in _ALL}
"""By name."""
