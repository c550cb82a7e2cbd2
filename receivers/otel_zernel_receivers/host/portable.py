"""The scrapers of systems without /proc, such as macOS, by psutil. Pressure, cgroups and processes are Linux only."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psutil

from otel_zernel_receivers.host.config import (
    CpuConfig,
    DiskConfig,
    FilesystemConfig,
    LoadConfig,
    MemoryConfig,
    NetworkConfig,
    PagingConfig,
    ScrapersConfig,
    selects,
)
from otel_zernel_receivers.host.metrics import (
    CPU,
    DEVICE,
    DISK_DIRECTION,
    FS_MODE,
    FS_STATE,
    FS_TYPE,
    INTERFACE,
    MEMORY_STATE,
    MODE,
    MOUNT,
    NET_DIRECTION,
    PAGING_STATE,
)
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


def portable_readers(scrapers: ScrapersConfig) -> list[Reader]:
    """The readers of the configured scrapers, as far as there is one."""
    return [
        PsutilReader(one.enabled(), _bound(_READS[one.scraper], one))
        for one in scrapers.configured()
        if one.scraper in _READS
    ]


def _bound(read: Callable[[Any], Iterator[Reading]], config: Any) -> Callable[[], Iterator[Reading]]:
    return lambda: read(config)


def _cpu(config: CpuConfig) -> Iterator[Reading]:
    times = psutil.cpu_times(percpu=True) if config.per_cpu else [psutil.cpu_times()]
    for number, of_cpu in enumerate(times):
        which: PointAttributes = ((CPU, number),) if config.per_cpu else ()
        for mode in ("user", "nice", "system", "idle", "iowait"):
            if (seconds := getattr(of_cpu, mode, None)) is not None:
                yield Reading("system.cpu.time", seconds, (*which, (MODE, mode)))
    yield Reading("system.cpu.logical.count", psutil.cpu_count() or 1)
    yield Reading("system.cpu.physical.count", psutil.cpu_count(logical=False) or 1)


def _memory(_: MemoryConfig) -> Iterator[Reading]:
    found = psutil.virtual_memory()
    for state, size in (("used", found.total - found.available), ("free", found.free)):
        yield Reading("system.memory.usage", size, ((MEMORY_STATE, state),))
        yield Reading("system.memory.utilization", size / found.total, ((MEMORY_STATE, state),))
    yield Reading("system.memory.limit", found.total)


def _disk(config: DiskConfig) -> Iterator[Reading]:
    for name, found in psutil.disk_io_counters(perdisk=True).items():
        if selects(config.include, config.exclude, name):
            for direction in ("read", "write"):
                attributes = ((DEVICE, name), (DISK_DIRECTION, direction))
                yield Reading("system.disk.io", getattr(found, f"{direction}_bytes"), attributes)
                yield Reading("system.disk.operations", getattr(found, f"{direction}_count"), attributes)
                yield Reading("system.disk.operation_time", getattr(found, f"{direction}_time") / 1000, attributes)


def _filesystem(config: FilesystemConfig) -> Iterator[Reading]:
    for mount in psutil.disk_partitions(all=config.include_virtual_filesystems)[: config.max_filesystems]:
        if not selects(config.include_mount_points, config.exclude_mount_points, mount.mountpoint):
            continue
        found = os.statvfs(mount.mountpoint)
        mode = "ro" if "ro" in mount.opts.split(",") else "rw"
        attributes = ((DEVICE, mount.device), (MOUNT, mount.mountpoint), (FS_MODE, mode), (FS_TYPE, mount.fstype))
        used = found.f_blocks - found.f_bfree
        for state, blocks in (("used", used), ("free", found.f_bavail)):
            yield Reading("system.filesystem.usage", blocks * found.f_frsize, (*attributes, (FS_STATE, state)))
        yield Reading("system.filesystem.limit", found.f_blocks * found.f_frsize, attributes)
        yield Reading("system.filesystem.utilization", used / max(used + found.f_bavail, 1), attributes)


def _network(config: NetworkConfig) -> Iterator[Reading]:
    for name, found in psutil.net_io_counters(pernic=True).items():
        if selects(config.include, config.exclude, name):
            for direction, word, short in (("receive", "recv", "in"), ("transmit", "sent", "out")):
                attributes = ((INTERFACE, name), (NET_DIRECTION, direction))
                yield Reading("system.network.io", getattr(found, f"bytes_{word}"), attributes)
                yield Reading("system.network.packet.count", getattr(found, f"packets_{word}"), attributes)
                yield Reading("system.network.packet.dropped", getattr(found, f"drop{short}"), attributes)
                yield Reading("system.network.errors", getattr(found, f"err{short}"), attributes)


def _load(config: LoadConfig) -> Iterator[Reading]:
    divisor = (psutil.cpu_count() or 1) if config.cpu_average else 1
    for minutes, average in zip((1, 5, 15), os.getloadavg(), strict=True):
        yield Reading(f"system.cpu.load_average.{minutes}m", average / divisor)


def _paging(_: PagingConfig) -> Iterator[Reading]:
    found = psutil.swap_memory()
    for state, size in (("used", found.used), ("free", found.free)) if found.total else ():
        yield Reading("system.paging.usage", size, ((DEVICE, "swap"), (PAGING_STATE, state)))


_READS: Mapping[str, Callable[[Any], Iterator[Reading]]] = {
    "cpu": _cpu,
    "memory": _memory,
    "disk": _disk,
    "filesystem": _filesystem,
    "network": _network,
    "load": _load,
    "paging": _paging,
}
