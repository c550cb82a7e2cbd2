"""The readers of the configured scrapers."""

from collections.abc import Callable, Mapping
from typing import Any

from otel_zernel.clock import Clock
from otel_zernel_receivers.host.config import HostConfig
from otel_zernel_receivers.host.linux.cgroup import CgroupReader, PressureReader
from otel_zernel_receivers.host.linux.cpu import CpuReader
from otel_zernel_receivers.host.linux.disk import DiskReader
from otel_zernel_receivers.host.linux.files import HostFiles
from otel_zernel_receivers.host.linux.filesystem import FilesystemReader
from otel_zernel_receivers.host.linux.memory import MemoryReader, PagingReader
from otel_zernel_receivers.host.linux.network import LoadReader, NetworkReader
from otel_zernel_receivers.host.linux.process_table import ProcessTable
from otel_zernel_receivers.host.linux.processes import ProcessesReader, ProcessReader
from otel_zernel_receivers.host.reading import ManySubjectsReader, Reader

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
            _READERS[one.scraper](one, files) for one in scrapers.configured() if one.scraper in _READERS
        ]
        if scrapers.processes:
            self.readers.append(ProcessesReader(scrapers.processes, files, self._table))
        if scrapers.process:
            self.readers.append(ProcessReader(scrapers.process, files, self._table, clock))

    def refresh(self) -> None:
        """Reads the table of processes, if a scraper needs it."""
        if self._needs_table:
            self._table.refresh()
