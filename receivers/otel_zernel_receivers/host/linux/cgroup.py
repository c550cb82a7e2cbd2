"""The cgroup in which the collector runs: its usage and limits, and pressure. See cgroups(7), both versions."""

import sys
from collections.abc import Iterator
from pathlib import Path

from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.host import metrics as m
from otel_zernel_receivers.host.config import CgroupConfig, PressureConfig
from otel_zernel_receivers.host.linux.files import FileReader, HostFiles
from otel_zernel_receivers.host.reading import Reading

_V1_UNLIMITED = 1 << 62
"""Version 1 shows no limit as the largest number of whole pages."""


class Cgroup:
    """The folders of the own cgroup. In a container, the folder is often the root of the mounted hierarchy."""

    def __init__(self, files: HostFiles) -> None:
        self._files = files
        self._mount = files.sys / "fs" / "cgroup"

    def folder(self, controller: str = "") -> Path | None:
        """The folder of a controller of version 1; without a name, that of version 2. None if it is not mounted."""
        top = self._mount / controller
        for line in self._files.text("self/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                own = top / path.lstrip("/")
                place = own if own.is_dir() else top
                return place if controller or (place / "cgroup.controllers").exists() else None
        return None

    def ancestors(self, folder: Path, controller: str = "") -> Iterator[Path]:
        """The folder and those above it: the lowest limit of all applies."""
        top = self._mount / controller
        while True:
            yield folder
            if folder == top:
                return
            folder = folder.parent


class CgroupReader(FileReader[CgroupConfig]):
    """Reads usage and limits of the own cgroup. The host's root has no cgroup of the collector: it reports nothing."""

    def __init__(self, config: CgroupConfig, files: HostFiles) -> None:
        super().__init__(config, files)
        self._cgroup = Cgroup(files)

    def read(self, problems: list[str]) -> Iterator[Reading]:
        if self._files.is_mounted:
            return
        unified = self._cgroup.folder()
        if unified is not None and (unified / "memory.current").exists():
            yield from self._version_2(unified)
        else:
            yield from self._version_1()

    def _version_2(self, folder: Path) -> Iterator[Reading]:
        cpu = _pairs(folder / "cpu.stat")
        yield Reading(semconv.CGROUP_CPU_TIME, cpu.get("usage_usec", 0) / 1e6)
        yield Reading(semconv.CGROUP_CPU_THROTTLED_TIME, cpu.get("throttled_usec", 0) / 1e6)
        above = list(self._cgroup.ancestors(folder))
        if quotas := [quota for folder_ in above if (quota := _quota(_text(folder_ / "cpu.max")))]:
            yield Reading(semconv.CGROUP_CPU_LIMIT, min(quotas))
        cache = _pairs(folder / "memory.stat").get("inactive_file", 0)
        yield Reading(semconv.CGROUP_MEMORY_USAGE, max(_integer(folder / "memory.current") - cache, 0))
        if limits := [int(text) for folder_ in above if (text := _text(folder_ / "memory.max").strip()).isdecimal()]:
            yield Reading(semconv.CGROUP_MEMORY_LIMIT, min(limits))
        yield Reading(semconv.CGROUP_MEMORY_OOM_KILLS, _pairs(folder / "memory.events").get("oom_kill", 0))

    def _version_1(self) -> Iterator[Reading]:
        if folder := self._cgroup.folder("cpuacct"):
            yield Reading(semconv.CGROUP_CPU_TIME, _integer(folder / "cpuacct.usage") / 1e9)
        if folder := self._cgroup.folder("cpu"):
            throttled = _pairs(folder / "cpu.stat").get("throttled_time", 0)
            yield Reading(semconv.CGROUP_CPU_THROTTLED_TIME, throttled / 1e9)
            above = self._cgroup.ancestors(folder, "cpu")
            if quotas := [quota for folder_ in above if (quota := _quota_of_version_1(folder_))]:
                yield Reading(semconv.CGROUP_CPU_LIMIT, min(quotas))
        if folder := self._cgroup.folder("memory"):
            cache = _pairs(folder / "memory.stat").get("total_inactive_file", 0)
            usage = _integer(folder / "memory.usage_in_bytes")
            yield Reading(semconv.CGROUP_MEMORY_USAGE, max(usage - cache, 0))
            above = self._cgroup.ancestors(folder, "memory")
            limit = min(_integer(folder_ / "memory.limit_in_bytes", sys.maxsize) for folder_ in above)
            if limit < _V1_UNLIMITED:
                yield Reading(semconv.CGROUP_MEMORY_LIMIT, limit)
            kills = _pairs(folder / "memory.oom_control").get("oom_kill", 0)
            yield Reading(semconv.CGROUP_MEMORY_OOM_KILLS, kills)


def _text(path: Path) -> str:
    """The content of the file; empty if it is missing: a root has no limits, an old kernel lacks some files."""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""


def _integer(path: Path, missing: int = 0) -> int:
    return int(_text(path) or missing)


def _pairs(path: Path) -> dict[str, int]:
    lines = (line.split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2}


def _quota(text: str) -> float | None:
    """CPUs by `cpu.max`: the quota and the period in us; None without a quota."""
    quota, _, period = text.strip().partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period else None


def _quota_of_version_1(folder: Path) -> float | None:
    quota = _integer(folder / "cpu.cfs_quota_us", -1)
    return quota / _integer(folder / "cpu.cfs_period_us", 100_000) if quota > 0 else None


class PressureReader(FileReader[PressureConfig]):
    """Reads the pressure of the machine and of the own cgroup. A kernel without PSI has none."""

    def __init__(self, config: PressureConfig, files: HostFiles) -> None:
        super().__init__(config, files)
        self._cgroup = Cgroup(files)

    def read(self, problems: list[str]) -> Iterator[Reading]:
        folder = None if self._files.is_mounted else self._cgroup.folder()
        for resource in ("cpu", "memory", "io"):
            yield from _pressure(self._files.proc / "pressure" / resource, resource, "host")
            if folder is not None:
                yield from _pressure(folder / f"{resource}.pressure", resource, "cgroup")


def _pressure(path: Path, resource: str, scope: str) -> Iterator[Reading]:
    """https://docs.kernel.org/accounting/psi.html"""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError:  # EOPNOTSUPP, too: PSI is built in, and off
        return
    for stall, *words in map(str.split, lines):
        values = dict(word.split("=") for word in words)
        attributes = ((m.RESOURCE, resource), (m.STALL, stall), (m.PRESSURE_OF, scope))
        yield Reading(m.PRESSURE_TIME, int(values["total"]) / 1e6, attributes)
        yield Reading(m.PRESSURE_SHARE, float(values["avg10"]) / 100, attributes)
