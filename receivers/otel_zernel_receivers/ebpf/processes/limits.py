"""The CPUs and the memory that a process may use, and uses, and the time for which its quota stopped it."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.tables.process_table import LimitsReading, Throttling, WatchedProcess

_FOLDERS: Final = {
    "cpu": ("cpu/{}", "cpu,cpuacct/{}", "{}", "unified/{}"),
    "memory": ("memory/{}", "{}", "unified/{}"),
}
"""Of a control group below /sys/fs/cgroup: in cgroup v1 under its names, in v2, and in v2 beside v1."""
_UNLIMITED: Final = 1 << 60
"""Bytes. The limit of cgroup v1 is a larger number if there is none."""


class Limits:
    """Reads the limits of processes."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._root = root
        self._before: dict[WatchedProcess, Throttling] = {}

    def read(self, folders: Iterable[tuple[WatchedProcess, ProcessFolder]]) -> list[LimitsReading]:
        """The limits of processes, with their folders in /proc. Those that have ended are left out."""
        before, self._before = self._before, {}
        found = []
        for process, folder in folders:
            with suppress(OSError, ValueError):
                found.append(self._read(process, folder, before))
        return found

    def _read(
        self, process: WatchedProcess, folder: ProcessFolder, before: dict[WatchedProcess, Throttling]
    ) -> LimitsReading:
        groups = list(self._groups(folder.cgroup("cpu")))
        cpus = min([float(folder.cpus_allowed()), *(quota for group in groups if (quota := _quota(group)))])
        throttling = _throttling(groups)
        if throttling is not None:
            self._before[process] = throttling
            throttling = throttling.since(before.get(process, throttling))
        left = [room for group in self._groups(folder.cgroup("memory"), "memory") if (room := _room(group)) is not None]
        memory = folder.anonymous_memory()
        return LimitsReading(process, cpus, folder.runnable_threads(), throttling, memory, min(left, default=None))

    def _groups(self, path: str, controller: str = "cpu") -> Iterator[Path]:
        """The folders of a group and of those around it: a limit of each of them stops the process."""
        inner = PurePosixPath(path.strip("/"))
        for pattern in _FOLDERS[controller] if path else ():
            if (self._root / pattern.format(inner) / f"{controller}.stat").exists():
                yield from (self._root / pattern.format(one) for one in (inner, *inner.parents))
                return


def _throttling(groups: Iterable[Path]) -> Throttling | None:
    """The sum of the counters; None if there are none. The pressure of the innermost group includes all waits."""
    total: Throttling | None = None
    for group in groups:
        with suppress(OSError, ValueError):
            lines = (line.split() for line in (group / "cpu.stat").read_text().splitlines())
            counts = {words[0]: int(words[1]) for words in lines if len(words) == 2}
            throttled = counts.get("throttled_time", 0) / 1e9 + counts.get("throttled_usec", 0) / 1e6  # v1, and v2
            before = total or Throttling(pressure_s=_pressure(group))
            total = replace(
                before,
                throttled_s=before.throttled_s + throttled,
                periods=before.periods + counts.get("nr_periods", 0),
                throttled_periods=before.throttled_periods + counts.get("nr_throttled", 0),
            )
    return total


def _pressure(group: Path) -> float | None:
    with suppress(OSError, ValueError, IndexError):
        some = (group / "cpu.pressure").read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    return None


def _quota(group: Path) -> float | None:
    """The CPUs that the quota of a group allows; None if it has none."""
    with suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        return int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota_us = int((group / "cpu.cfs_quota_us").read_text())
        return quota_us / int((group / "cpu.cfs_period_us").read_text()) if quota_us > 0 else None
    return None


def _room(group: Path) -> int | None:
    """The bytes that the limit of a group leaves; None if it has none. Files that were read once give way."""
    for limit_file, usage_file, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError):
            limit, used = (int((group / name).read_text()) for name in (limit_file, usage_file))
            lines = (line.split() for line in (group / "memory.stat").read_text().splitlines())
            given = next((int(words[1]) for words in lines if words[0] == cache), 0)
            return max(limit - used + given, 0) if limit < _UNLIMITED else None
    return None
