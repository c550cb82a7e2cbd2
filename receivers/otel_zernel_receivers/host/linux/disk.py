"""Disks, from /proc/diskstats. The fields are those of Documentation/admin-guide/iostats.rst of the kernel."""

import os
from collections.abc import Iterator

from otel_zernel_receivers.host.config import DiskConfig, selects
from otel_zernel_receivers.host.linux.files import HostFiles
from otel_zernel_receivers.host.metrics import DEVICE, DISK_DIRECTION
from otel_zernel_receivers.host.reading import Reader, Reading

_SECTOR = 512
"""Bytes. The unit of diskstats, whatever the disk uses."""


class DiskReader(Reader):
    """Reads whole disks: their partitions would count everything twice."""

    def __init__(self, config: DiskConfig, files: HostFiles) -> None:
        super().__init__(config.enabled())
        self._config = config
        self._files = files

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
        attributes = ((DEVICE, name), (DISK_DIRECTION, direction))
        yield Reading("system.disk.io", sectors * _SECTOR, attributes)
        yield Reading("system.disk.operations", operations, attributes)
        yield Reading("system.disk.operation_time", milliseconds / 1000, attributes)
        yield Reading("system.disk.merged", merged, attributes)
    yield Reading("system.disk.io_time", fields[9] / 1000, ((DEVICE, name),))
