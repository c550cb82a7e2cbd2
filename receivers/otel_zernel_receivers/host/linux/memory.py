"""Memory, from /proc/meminfo; swap and page faults, from /proc/swaps and /proc/vmstat."""

from collections.abc import Iterator, Mapping

from otel_zernel_receivers.host import metrics as m
from otel_zernel_receivers.host.config import MemoryConfig, PagingConfig
from otel_zernel_receivers.host.linux.files import FileReader, HostFiles
from otel_zernel_receivers.host.reading import Reading


class MemoryReader(FileReader[MemoryConfig]):
    """Reads the memory of the machine."""

    def read(self, problems: list[str]) -> Iterator[Reading]:
        sizes = meminfo(self._files)
        total, free = sizes["MemTotal"], sizes["MemFree"]
        buffers = sizes.get("Buffers", 0)
        cached = sizes.get("Cached", 0) + sizes.get("SReclaimable", 0)
        available = sizes.get("MemAvailable", free + buffers + cached)
        states = {"used": total - available, "free": free, "buffers": buffers, "cached": cached}
        for state, size in states.items():
            yield Reading("system.memory.usage", size, ((m.MEMORY_STATE, state),))
            yield Reading("system.memory.utilization", size / total, ((m.MEMORY_STATE, state),))
        yield Reading("system.memory.limit", total)
        yield Reading("system.memory.linux.available", available)
        yield Reading("system.memory.linux.shared", sizes.get("Shmem", 0))
        yield from _details(sizes)


def meminfo(files: HostFiles) -> dict[str, int]:
    """The values in bytes; those of huge pages in pages."""
    lines = (words for words in files.lines("meminfo") if len(words) > 1)
    return {words[0].rstrip(":"): int(words[1]) * (1024 if words[2:] == ["kB"] else 1) for words in lines}


def _details(sizes: Mapping[str, int]) -> Iterator[Reading]:
    for state, name in (("reclaimable", "SReclaimable"), ("unreclaimable", "SUnreclaim")):
        if name in sizes:
            yield Reading("system.memory.linux.slab.usage", sizes[name], ((m.SLAB_STATE, state),))
    if "HugePages_Total" in sizes:
        total, free = sizes["HugePages_Total"], sizes["HugePages_Free"]
        yield Reading("system.memory.linux.hugepages.limit", total)
        yield Reading("system.memory.linux.hugepages.usage", free, ((m.HUGEPAGES_STATE, "free"),))
        yield Reading("system.memory.linux.hugepages.usage", total - free, ((m.HUGEPAGES_STATE, "used"),))


class PagingReader(FileReader[PagingConfig]):
    """Reads swap and page faults."""

    def read(self, problems: list[str]) -> Iterator[Reading]:
        for device, _, size, used, *_ in [*self._files.lines("swaps")][1:]:
            for state, kib in (("used", int(used)), ("free", int(size) - int(used))):
                attributes = ((m.DEVICE, device), (m.PAGING_STATE, state))
                yield Reading("system.paging.usage", kib * 1024, attributes)
                yield Reading("system.paging.utilization", kib / max(int(size), 1), attributes)
        counts = {name: int(value) for name, value in self._files.lines("vmstat")}
        for direction in ("in", "out"):
            swapped = counts.get(f"pswp{direction}", 0)
            yield Reading("system.paging.operations", swapped, ((m.PAGING_DIRECTION, direction),))
        major = counts.get("pgmajfault", 0)
        yield Reading("system.paging.faults", major, ((m.FAULT_TYPE, "major"),))
        yield Reading("system.paging.faults", counts.get("pgfault", 0) - major, ((m.FAULT_TYPE, "minor"),))
