"""The scrapers of systems without /proc, such as macOS, by psutil. Pressure, cgroups and processes are Linux only."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import psutil

from otel_zernel_receivers.host import config as options
from otel_zernel_receivers.host import metrics as m
from otel_zernel_receivers.host.reading import PointAttributes, Reader, Reading


class PsutilReader(Reader):
    """Reads one scraper by a function that calls psutil."""

    def __init__(self, enabled: frozenset[str], read: Callable[[], Iterator[Reading]]) -> None:
        super().__init__(enabled)
        self._read = read

    def read(self, problems: list[str]) -> Iterator[Reading]:
        return self._read()


def boot_time_ns() -> int:
    """The start of the machine in ns since 1970."""
    return int(psutil.boot_time()) * 1_000_000_000


def portable_readers(scrapers: options.ScrapersConfig) -> list[Reader]:
    """The readers of the configured scrapers, as far as there is one."""
    return [
        PsutilReader(scraper.enabled(), partial(_READS[scraper.scraper], scraper))
        for scraper in scrapers.configured()
        if scraper.scraper in _READS
    ]


def _cpu(config: options.CpuConfig) -> Iterator[Reading]:
    times = psutil.cpu_times(percpu=True) if config.per_cpu else [psutil.cpu_times()]
    for number, of_cpu in enumerate(times):
        which: PointAttributes = ((m.CPU, number),) if config.per_cpu else ()
        for mode in ("user", "nice", "system", "idle", "iowait"):
            if (seconds := getattr(of_cpu, mode, None)) is not None:
                yield Reading("system.cpu.time", seconds, (*which, (m.MODE, mode)))
    yield Reading("system.cpu.logical.count", psutil.cpu_count() or 1)
    yield Reading("system.cpu.physical.count", psutil.cpu_count(logical=False) or 1)


def _memory(_: options.MemoryConfig) -> Iterator[Reading]:
    virtual_memory = psutil.virtual_memory()
    for state, size in (("used", virtual_memory.total - virtual_memory.available), ("free", virtual_memory.free)):
        yield Reading("system.memory.usage", size, ((m.MEMORY_STATE, state),))
        yield Reading("system.memory.utilization", size / virtual_memory.total, ((m.MEMORY_STATE, state),))
    yield Reading("system.memory.limit", virtual_memory.total)


def _disk(config: options.DiskConfig) -> Iterator[Reading]:
    for name, disk_io_counter in psutil.disk_io_counters(perdisk=True).items():
        if options.selects(config.include, config.exclude, name):
            for direction in ("read", "write"):
                attributes = ((m.DEVICE, name), (m.DISK_DIRECTION, direction))
                yield Reading("system.disk.io", getattr(disk_io_counter, f"{direction}_bytes"), attributes)
                yield Reading("system.disk.operations", getattr(disk_io_counter, f"{direction}_count"), attributes)
                yield Reading(
                    "system.disk.operation_time", getattr(disk_io_counter, f"{direction}_time") / 1000, attributes
                )


def _filesystem(config: options.FilesystemConfig) -> Iterator[Reading]:
    for mount in psutil.disk_partitions(all=config.include_virtual_filesystems)[: config.max_filesystems]:
        if not options.selects(config.include_mount_points, config.exclude_mount_points, mount.mountpoint):
            continue
        statvfs = os.statvfs(mount.mountpoint)
        mode = "ro" if "ro" in mount.opts.split(",") else "rw"
        device, point, type_ = mount.device, mount.mountpoint, mount.fstype
        attributes = ((m.DEVICE, device), (m.MOUNT, point), (m.FS_MODE, mode), (m.FS_TYPE, type_))
        used = statvfs.f_blocks - statvfs.f_bfree
        for state, blocks in (("used", used), ("free", statvfs.f_bavail)):
            yield Reading("system.filesystem.usage", blocks * statvfs.f_frsize, (*attributes, (m.FS_STATE, state)))
        yield Reading("system.filesystem.limit", statvfs.f_blocks * statvfs.f_frsize, attributes)
        yield Reading("system.filesystem.utilization", used / max(used + statvfs.f_bavail, 1), attributes)


def _network(config: options.NetworkConfig) -> Iterator[Reading]:
    for name, net_io_counter in psutil.net_io_counters(pernic=True).items():
        if options.selects(config.include, config.exclude, name):
            for direction, word, short in (("receive", "recv", "in"), ("transmit", "sent", "out")):
                attributes = ((m.INTERFACE, name), (m.NET_DIRECTION, direction))
                yield Reading("system.network.io", getattr(net_io_counter, f"bytes_{word}"), attributes)
                yield Reading("system.network.packet.count", getattr(net_io_counter, f"packets_{word}"), attributes)
                yield Reading("system.network.packet.dropped", getattr(net_io_counter, f"drop{short}"), attributes)
                yield Reading("system.network.errors", getattr(net_io_counter, f"err{short}"), attributes)


def _load(config: options.LoadConfig) -> Iterator[Reading]:
    divisor = (psutil.cpu_count() or 1) if config.cpu_average else 1
    for minutes, average in zip((1, 5, 15), os.getloadavg(), strict=True):
        yield Reading(f"system.cpu.load_average.{minutes}m", average / divisor)


def _paging(_: options.PagingConfig) -> Iterator[Reading]:
    swap_memory = psutil.swap_memory()
    for state, size in (("used", swap_memory.used), ("free", swap_memory.free)) if swap_memory.total else ():
        yield Reading("system.paging.usage", size, ((m.DEVICE, "swap"), (m.PAGING_STATE, state)))


_READS: Mapping[str, Callable[[Any], Iterator[Reading]]] = {
    "cpu": _cpu,
    "memory": _memory,
    "disk": _disk,
    "filesystem": _filesystem,
    "network": _network,
    "load": _load,
    "paging": _paging,
}
