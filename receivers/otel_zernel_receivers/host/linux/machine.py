"""The readers of the configured scrapers, and those of short files in /proc.

The fields of /proc/diskstats are those of Documentation/admin-guide/iostats.rst of the kernel.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from otel_zernel.clock import Clock
from otel_zernel_receivers.host import metrics as m
from otel_zernel_receivers.host.config import DiskConfig, HostConfig, LoadConfig, NetworkConfig, selects
from otel_zernel_receivers.host.linux.cgroup import CgroupReader, PressureReader
from otel_zernel_receivers.host.linux.cpu import CpuReader
from otel_zernel_receivers.host.linux.files import FileReader, HostFiles
from otel_zernel_receivers.host.linux.filesystem import FilesystemReader
from otel_zernel_receivers.host.linux.memory import MemoryReader, PagingReader
from otel_zernel_receivers.host.linux.process_table import ProcessTable
from otel_zernel_receivers.host.linux.processes import ProcessesReader, ProcessReader
from otel_zernel_receivers.host.reading import ManySubjectsReader, Reader, Reading

# include/net/tcp_states.h
_STATES = {
    "01": "established",
    "02": "syn_sent",
    "03": "syn_received",
    "04": "fin_wait_1",
    "05": "fin_wait_2",
    "06": "time_wait",
    "07": "closed",
    "08": "close_wait",
    "09": "last_ack",
    "0A": "listen",
    "0B": "closing",
    "0C": "syn_received",
}


class NetworkReader(FileReader[NetworkConfig]):
    """Reads network interfaces."""

    def read(self, problems: list[str]) -> Iterator[Reading]:
        reported = 0
        for line in self._files.of_machine("net/dev").splitlines()[2:]:
            name, _, numbers = line.rpartition(":")
            name = name.strip()
            if selects(self._config.include, self._config.exclude, name):
                reported += 1
                if reported <= self._config.max_interfaces:
                    yield from _of_interface(name, [int(number) for number in numbers.split()])
        if reported > self._config.max_interfaces:
            missing = f"{reported - self._config.max_interfaces} network interfaces"
            self._limit.exceeded(problems, missing, "max_interfaces")
        if "system.network.connection.count" in self.enabled:
            yield from self._connections()

    def _connections(self) -> Iterator[Reading]:
        states: Counter[str] = Counter(dict.fromkeys(_STATES.values(), 0))
        for name in ("net/tcp", "net/tcp6"):
            try:
                lines = self._files.of_machine(name).splitlines()[1:]
            except FileNotFoundError:  # IPv6 may be disabled
                continue
            states.update(_STATES.get(line.split(None, 4)[3], "closed") for line in lines)
        for state, count in states.items():
            attributes = ((m.TRANSPORT, "tcp"), (m.CONNECTION_STATE, state))
            yield Reading("system.network.connection.count", count, attributes)


def _of_interface(name: str, numbers: list[int]) -> Iterator[Reading]:
    for direction, at in (("receive", 0), ("transmit", 8)):
        octets, packets, errors, dropped = numbers[at : at + 4]
        attributes = ((m.INTERFACE, name), (m.NET_DIRECTION, direction))
        yield Reading("system.network.io", octets, attributes)
        yield Reading("system.network.packet.count", packets, attributes)
        yield Reading("system.network.packet.dropped", dropped, attributes)
        yield Reading("system.network.errors", errors, attributes)


class LoadReader(FileReader[LoadConfig]):
    """Reads the load averages."""

    def read(self, problems: list[str]) -> Iterator[Reading]:
        words = self._files.text("loadavg").split()
        cpus = 1
        if self._config.cpu_average:
            cpus = sum(line[0].startswith("cpu") for line in self._files.lines("stat") if line) - 1
        for minutes, average in zip((1, 5, 15), words, strict=False):
            yield Reading(f"system.cpu.load_average.{minutes}m", float(average) / max(cpus, 1))


_SECTOR = 512
"""Bytes. The unit of diskstats, whatever the disk uses."""


class DiskReader(FileReader[DiskConfig]):
    """Reads whole disks: their partitions would count everything twice."""

    def read(self, problems: list[str]) -> Iterator[Reading]:
        whole = self._whole_disks()
        for words in self._files.lines("diskstats"):
            name = words[2]
            if (whole is None or name in whole) and selects(self._config.include, self._config.exclude, name):
                yield from _of_disk(name, [int(word) for word in words[3:]])

    def _whole_disks(self) -> set[str] | None:
        """The disks without their partitions; None if sysfs is missing, as in some containers."""
        try:
            return {name.replace("!", "/") for name in os.listdir(self._files.sys / "block")}  # noqa: PTH208
        except OSError:
            return None


def _of_disk(name: str, fields: list[int]) -> Iterator[Reading]:
    for direction, at in (("read", 0), ("write", 4)):
        operations, merged, sectors, milliseconds = fields[at : at + 4]
        attributes = ((m.DEVICE, name), (m.DISK_DIRECTION, direction))
        yield Reading("system.disk.io", sectors * _SECTOR, attributes)
        yield Reading("system.disk.operations", operations, attributes)
        yield Reading("system.disk.operation_time", milliseconds / 1000, attributes)
        yield Reading("system.disk.merged", merged, attributes)
    yield Reading("system.disk.io_time", fields[9] / 1000, ((m.DEVICE, name),))


_READERS: Mapping[str, Callable[[Any, HostFiles], Reader]] = {
    "cpu": CpuReader,
    "memory": MemoryReader,
    "disk": DiskReader,
    "filesystem": FilesystemReader,
    "network": NetworkReader,
    "load": LoadReader,
    "paging": PagingReader,
    "pressure": PressureReader,
    "cgroup": CgroupReader,
}


class LinuxMachine:
    """The readers, the start of the machine, and its name. Raises OSError if there is no /proc."""

    def __init__(self, config: HostConfig, clock: Clock) -> None:
        files = HostFiles(config.root_path)
        self.boot_ns = files.boot_time_ns()
        self.host_name = files.host_name
        self._table = ProcessTable(files)
        scrapers = config.scrapers
        self._needs_table = bool(scrapers.processes or scrapers.process)
        self.readers: list[Reader | ManySubjectsReader] = [
            _READERS[scraper.scraper](scraper, files)
            for scraper in scrapers.configured()
            if scraper.scraper in _READERS
        ]
        if scrapers.processes:
            self.readers.append(ProcessesReader(scrapers.processes, files, self._table))
        if scrapers.process:
            self.readers.append(ProcessReader(scrapers.process, files, self._table, clock))

    def refresh(self) -> None:
        """Reads the table of processes, if a scraper needs it."""
        if self._needs_table:
            self._table.refresh()
