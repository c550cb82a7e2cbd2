"""Reads the folder of one process in /proc, with a limit on the size of each file.

Every method raises OSError if the process has ended or access is denied, unless its docstring says otherwise.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from otel_zernel_receivers.ebpf.processes.process_memory import memory_of

_MAX_MAPS = 16 << 20  # vm.max_map_count allows 65,530 mappings by default
_MAX_ENVIRONMENT = 1 << 20
_MAX_VALUE = 256
_MAX_LINE = 4096
_MAX_STATUS = 16_384
_MAX_DESCRIPTORS = 4_096
_MAX_THREADS = 1_024
_TICKS = os.sysconf("SC_CLK_TCK")
_MAX_CGROUPS = 1 << 16  # cgroup v1 has a path for each of about 14 hierarchies, and nested containers have long paths


class ProcessFolder:
    """The folder of process `pid`."""

    def __init__(self, proc_root: Path, pid: int) -> None:
        self.pid = pid
        self.path = proc_root / str(pid)

    @cached_property
    def maps(self) -> bytes:
        """The text of `maps`; empty for kernel threads."""
        return self._read("maps", _MAX_MAPS)

    def start_time(self) -> int:
        """The start time of the process, in clock ticks since boot."""
        return self._stat(22)

    def parent(self) -> int:
        """The pid of the process's parent; 0 if the parent is in a pid namespace that this /proc does not show."""
        return self._stat(4)

    def exit_status(self) -> int:
        """How the process ended, as waitpid(2) reports it; 0 while it runs, and without the right to trace it."""
        return self._stat(52)

    def cpu_time(self) -> float:
        """The CPU time that the process's threads have used, s."""
        return (self._stat(14) + self._stat(15)) / _TICKS

    def own_pids(self) -> list[int]:
        """Its pid in each of its pid namespaces, its own namespace last."""
        lines = self._read("status", _MAX_STATUS).splitlines()
        line = next((line for line in lines if line.startswith(b"NSpid:")), b"NSpid: %d" % self.pid)
        return list(map(int, line.split()[1:]))

    def open_files(self) -> Iterator[bytes]:
        """What its descriptors are: paths, and names such as `pipe:[812]`."""
        for descriptor in islice((self.path / "fd").iterdir(), _MAX_DESCRIPTORS):
            with suppress(FileNotFoundError):
                yield os.fsencode(descriptor.readlink())

    @cached_property
    def command_line(self) -> bytes:
        """The arguments of the program, each ended by a zero byte; cut at 4 KiB. Empty for kernel threads."""
        return self._read("cmdline", _MAX_LINE)

    @cached_property
    def name(self) -> str:
        """The process's name in the kernel (comm), at most 15 characters."""
        return os.fsdecode(self._read("comm", _MAX_LINE).removesuffix(b"\n"))

    @cached_property
    def executable(self) -> str:
        """The path of the executable in the process's mount namespace; empty if /proc denies access."""
        with suppress(OSError):
            return str((self.path / "exe").readlink()).removesuffix(" (deleted)")
        return ""

    @cached_property
    def cgroups(self) -> tuple[str, ...]:
        """The paths of the process's control groups: one for cgroup v2, and one per hierarchy for cgroup v1."""
        return tuple(dict.fromkeys(path for _, path in self._cgroups))

    def cgroup(self, controller: str) -> str:
        """The path of the control group that limits this use (`cpu`, `memory`) of the process; empty if it has none."""
        groups = dict(reversed([(name, path) for names, path in self._cgroups for name in names.split(",")]))
        return groups.get(controller) or groups.get("", "")

    def cpus_allowed(self) -> int:
        """The CPUs on which its first thread may run."""
        return len(os.sched_getaffinity(self.pid))

    def runnable_threads(self) -> int:
        """Its threads that run, or wait for a CPU."""
        count = 0
        for task in islice((self.path / "task").iterdir(), _MAX_THREADS):
            with suppress(OSError):
                stat = (task / "stat").read_bytes()
                count += stat[stat.rindex(b")") + 2 :].startswith(b"R")
        return count

    def anonymous_memory(self) -> int:
        """The bytes of its memory that are no copies of files, and resident."""
        lines = self._read("status", _MAX_STATUS).splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"RssAnon:")), 0)

    @cached_property
    def _cgroups(self) -> list[tuple[str, str]]:
        """The controllers of each hierarchy, joined by commas (empty for cgroup v2), and the path in it."""
        lines = os.fsdecode(self._read("cgroup", _MAX_CGROUPS)).splitlines()
        fields = (line.split(":", 2) for line in lines if line.count(":") >= 2)
        return [(controllers, path) for _, controllers, path in fields]

    def environment(self, names: Collection[str], own_pid: int = 0) -> dict[str, str]:
        """Those of the variables `names` that the process was started with; empty if access is denied.

        Only the process's user may read the file `environ`. Others read the process's memory, which needs `own_pid`:
        its pid in the collector's pid namespace.
        """
        if not names:
            return {}
        pairs = (os.fsdecode(variable).partition("=") for variable in self._environment(own_pid).split(b"\0"))
        return {name: value[:_MAX_VALUE] for name, _, value in pairs if name in names}

    def _environment(self, own_pid: int) -> bytes:
        with suppress(PermissionError):
            return self._read("environ", _MAX_ENVIRONMENT)
        start, end = self._stat(50), self._stat(51)  # zeros without the right to trace the process
        if not own_pid or start >= end:
            return b""
        with suppress(OSError):  # some kernels, sandboxes and security modules refuse it
            return memory_of(own_pid, start, min(end - start, _MAX_ENVIRONMENT))
        return b""

    def _stat(self, field: int) -> int:
        """A numeric field of `stat` behind the name, by its number in proc_pid_stat(5).

        The name may contain any character, so the search for its end starts from the right.
        """
        stat = self._read("stat", _MAX_LINE)
        return int(stat[stat.rindex(b")") :].split()[field - 2])

    def _read(self, name: str, limit: int) -> bytes:
        with (self.path / name).open("rb", buffering=0) as file:
            chunks = iter(lambda: file.read(1 << 16), b"")
            content = bytearray()
            for chunk in chunks:
                content += chunk
                if len(content) >= limit:
                    break
            return bytes(content[:limit])


class ProcessId(NamedTuple):
    """A process on this machine. Pids are reused, so the start time (clock ticks since boot) is part of the id."""

    pid: int
    start_time: int
