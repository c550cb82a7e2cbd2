"""Every metric of the receiver: name, unit, type, description, attributes, its scraper, and its default.

Names and attributes are those of OpenTelemetry's semantic conventions for systems and processes. Others are those of
the OpenTelemetry Collector's hostmetrics receiver (load averages, inodes), or `zernel.*` (pressure, cgroup).
"""

from dataclasses import dataclass
from typing import Literal

from otel_zernel_libraries.training import semconv

CPU, MODE = "cpu.logical_number", "cpu.mode"
MEMORY_STATE, SLAB_STATE = "system.memory.state", "system.memory.linux.slab.state"
HUGEPAGES_STATE = "system.memory.linux.hugepages.state"
DEVICE, DISK_DIRECTION = "system.device", "disk.io.direction"
MOUNT, FS_MODE, FS_TYPE, FS_STATE = (f"system.filesystem.{name}" for name in ("mountpoint", "mode", "type", "state"))
INTERFACE, NET_DIRECTION = "network.interface.name", "network.io.direction"
CONNECTION_STATE, TRANSPORT = "network.connection.state", "network.transport"
PAGING_STATE, PAGING_DIRECTION = "system.paging.state", "system.paging.direction"
FAULT_TYPE = "system.paging.fault.type"
PROCESS_STATE, SWITCH_TYPE = "process.state", "process.context_switch.type"
PRESSURE_TIME, PRESSURE_SHARE = "zernel.pressure.time", "zernel.pressure.share"
RESOURCE, STALL, PRESSURE_OF = "zernel.pressure.resource", "zernel.pressure.stall", "zernel.pressure.scope"

_FILESYSTEM = (DEVICE, MOUNT, FS_MODE, FS_TYPE)
_NETWORK = (INTERFACE, NET_DIRECTION)

ScraperName = Literal[
    "cpu", "memory", "disk", "filesystem", "network", "load", "paging", "pressure", "cgroup", "processes", "process"
]


@dataclass(frozen=True, slots=True)
class HostMetric:
    """A metric. Sums are cumulative: from the start of the machine, or of the process."""

    scraper: ScraperName
    name: str
    unit: str
    kind: Literal["gauge", "sum", "up_down"]
    description: str
    attributes: tuple[str, ...] = ()
    enabled: bool = True
    """Whether it is sent unless the configuration disables it."""


METRICS = {
    metric.name: metric
    for metric in (
        HostMetric("cpu", "system.cpu.time", "s", "sum", "CPU time in each mode.", (CPU, MODE)),
        HostMetric(
            *("cpu", "system.cpu.utilization", "1", "gauge"),
            "Share of the CPU time since the last scrape in each mode.",
            (CPU, MODE),
        ),
        HostMetric("cpu", "system.cpu.logical.count", "{cpu}", "up_down", "Logical CPUs that are online."),
        HostMetric("cpu", "system.cpu.physical.count", "{cpu}", "up_down", "Physical cores.", enabled=False),
        HostMetric("cpu", "system.cpu.frequency", "Hz", "gauge", "Current frequency.", (CPU,), enabled=False),
        HostMetric(
            *("memory", "system.memory.usage", "By", "up_down"),
            "Memory by state. `used` is the total less the available memory; the other states overlap with it.",
            (MEMORY_STATE,),
        ),
        HostMetric("memory", "system.memory.limit", "By", "up_down", "Total memory."),
        HostMetric("memory", "system.memory.utilization", "1", "gauge", "Share of memory by state.", (MEMORY_STATE,)),
        HostMetric(
            *("memory", "system.memory.linux.available", "By", "up_down"),
            "Memory that programs can get without swapping, estimated by the kernel.",
        ),
        HostMetric(
            *("memory", "system.memory.linux.shared", "By", "up_down"),
            "Shared memory and tmpfs, such as the queues of DataLoader workers in /dev/shm.",
        ),
        HostMetric(
            *("memory", "system.memory.linux.slab.usage", "By", "up_down", "Caches of kernel objects.", (SLAB_STATE,)),
            enabled=False,
        ),
        HostMetric(
            *("memory", "system.memory.linux.hugepages.limit", "{page}", "up_down", "Huge pages in the pool."),
            enabled=False,
        ),
        HostMetric(
            *("memory", "system.memory.linux.hugepages.usage", "{page}", "up_down", "Huge pages by state."),
            (HUGEPAGES_STATE,),
            enabled=False,
        ),
        HostMetric("disk", "system.disk.io", "By", "sum", "Bytes read and written.", (DEVICE, DISK_DIRECTION)),
        HostMetric(
            *("disk", "system.disk.operations", "{operation}", "sum", "Finished operations."), (DEVICE, DISK_DIRECTION)
        ),
        HostMetric(
            *("disk", "system.disk.operation_time", "s", "sum", "Sum of the durations of all operations."),
            (DEVICE, DISK_DIRECTION),
        ),
        HostMetric("disk", "system.disk.io_time", "s", "sum", "Time in which the disk was busy.", (DEVICE,)),
        HostMetric(
            *("disk", "system.disk.merged", "{operation}", "sum", "Operations merged into others."),
            (DEVICE, DISK_DIRECTION),
        ),
        HostMetric(
            *("filesystem", "system.filesystem.usage", "By", "up_down"),
            "Space by state. `reserved` is free for root only.",
            (*_FILESYSTEM, FS_STATE),
        ),
        HostMetric("filesystem", "system.filesystem.limit", "By", "up_down", "Size.", _FILESYSTEM),
        HostMetric(
            *("filesystem", "system.filesystem.utilization", "1", "gauge"),
            "Used space as a share of the space that users can have.",
            _FILESYSTEM,
        ),
        HostMetric(
            *("filesystem", "system.filesystem.inodes.usage", "{inode}", "up_down"),
            "Inodes by state. Many small files can use all of them before the disk is full.",
            (*_FILESYSTEM, FS_STATE),
        ),
        HostMetric("network", "system.network.io", "By", "sum", "Bytes received and sent.", _NETWORK),
        HostMetric("network", "system.network.packet.count", "{packet}", "sum", "Packets.", _NETWORK),
        HostMetric("network", "system.network.packet.dropped", "{packet}", "sum", "Dropped packets.", _NETWORK),
        HostMetric("network", "system.network.errors", "{error}", "sum", "Errors.", _NETWORK),
        HostMetric(
            *("network", "system.network.connection.count", "{connection}", "up_down", "TCP connections by state."),
            (TRANSPORT, CONNECTION_STATE),
            enabled=False,
        ),
        *(
            HostMetric(
                *("load", f"system.cpu.load_average.{minutes}m", "{thread}", "gauge"),
                f"Threads that ran, waited for a CPU, or waited for a disk: average of {minutes} min.",
            )
            for minutes in (1, 5, 15)
        ),
        HostMetric("paging", "system.paging.usage", "By", "up_down", "Swap by state.", (DEVICE, PAGING_STATE)),
        HostMetric(
            *("paging", "system.paging.utilization", "1", "gauge", "Used share of the swap.", (DEVICE, PAGING_STATE)),
            enabled=False,
        ),
        HostMetric(
            *("paging", "system.paging.operations", "{operation}", "sum", "Pages swapped in and out."),
            (PAGING_DIRECTION,),
        ),
        HostMetric("paging", "system.paging.faults", "{fault}", "sum", "Page faults.", (FAULT_TYPE,)),
        HostMetric(
            *("pressure", PRESSURE_TIME, "s", "sum"),
            "Time in which some or all threads waited for the resource (PSI).",
            (RESOURCE, STALL, PRESSURE_OF),
        ),
        HostMetric(
            *("pressure", PRESSURE_SHARE, "1", "gauge"),
            "Share of the last 10 s in which some or all threads waited for the resource (PSI).",
            (RESOURCE, STALL, PRESSURE_OF),
        ),
        HostMetric("cgroup", semconv.CGROUP_CPU_TIME, "s", "sum", "CPU time of the cgroup."),
        HostMetric(
            *("cgroup", semconv.CGROUP_CPU_THROTTLED_TIME, "s", "sum"),
            "Time in which the cgroup's threads were stopped because its CPU quota was used up.",
        ),
        HostMetric("cgroup", semconv.CGROUP_CPU_LIMIT, "{cpu}", "up_down", "CPUs that the cgroup may use."),
        HostMetric(
            *("cgroup", semconv.CGROUP_MEMORY_USAGE, "By", "up_down"),
            "Memory of the cgroup, without the file cache that the kernel can drop at once.",
        ),
        HostMetric("cgroup", semconv.CGROUP_MEMORY_LIMIT, "By", "up_down", "Memory that the cgroup may use."),
        HostMetric("cgroup", semconv.CGROUP_MEMORY_OOM_KILLS, "{kill}", "sum", "Processes killed for lack of memory."),
        HostMetric(
            *("processes", "system.process.count", "{process}", "up_down", "Processes by state."), (PROCESS_STATE,)
        ),
        HostMetric("processes", "system.process.created", "{process}", "sum", "Processes created."),
        HostMetric("process", "process.cpu.time", "s", "sum", "CPU time of the process.", (MODE,)),
        HostMetric(
            *("process", "process.cpu.utilization", "1", "gauge"),
            "CPU time since the last scrape, divided by the elapsed time and the number of CPUs.",
            (MODE,),
            enabled=False,
        ),
        HostMetric("process", "process.memory.usage", "By", "up_down", "Resident memory."),
        HostMetric("process", "process.memory.virtual", "By", "up_down", "Virtual memory."),
        HostMetric(
            *("process", "process.memory.utilization", "1", "gauge", "Resident memory as a share of the total."),
            enabled=False,
        ),
        HostMetric("process", "process.disk.io", "By", "sum", "Bytes read and written.", (DISK_DIRECTION,)),
        HostMetric("process", "process.thread.count", "{thread}", "up_down", "Threads."),
        HostMetric("process", "process.paging.faults", "{fault}", "sum", "Page faults.", (FAULT_TYPE,), enabled=False),
        HostMetric(
            *("process", "process.context_switches", "{context_switch}", "sum", "Context switches of the main thread."),
            (SWITCH_TYPE,),
            enabled=False,
        ),
        HostMetric(
            *("process", "process.unix.file_descriptor.count", "{file_descriptor}", "up_down", "Open files."),
            enabled=False,
        ),
        HostMetric("process", "process.uptime", "s", "gauge", "Time since the start of the process.", enabled=False),
    )
}


def of_scraper(scraper: str) -> dict[str, HostMetric]:
    """The metrics of one scraper, by name."""
    return {name: metric for name, metric in METRICS.items() if metric.scraper == scraper}
