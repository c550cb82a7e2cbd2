"""One process's folder in /proc, read in bounded pieces.

Everything raises OSError when the process is gone or may not be looked at, unless it says otherwise.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from otel_zernel_receivers.ebpf.processes.process_memory import memory_of

_MAX_MAPS = 16 << 20  # a process may have 65,530 mappings, unless told otherwise
_MAX_ENVIRONMENT = 1 << 20
_MAX_VALUE = 256
_MAX_LINE = 4096
_MAX_CGROUPS = 1 << 16  # version 1 has a path for each of some 14 hierarchies, and nested containers have long ones


class ProcessFolder:
    """What /proc tells of process `pid`."""

    def __init__(self, proc_root: Path, pid: int) -> None:
        self.pid = pid
        self._path = proc_root / str(pid)

    @cached_property
    def maps(self) -> bytes:
        """The address space; empty for threads of the kernel."""
        return self._read("maps", _MAX_MAPS)

    def start_time(self) -> int:
        """When the process was started, in clock ticks since boot."""
        return self._stat(22)

    def parent(self) -> int:
        """The pid of the process's parent; 0 if that is in a pid namespace that this /proc does not show."""
        return self._stat(4)

    @cached_property
    def name(self) -> str:
        """The name that the kernel keeps, 15 characters at most."""
        return os.fsdecode(self._read("comm", _MAX_LINE).removesuffix(b"\n"))

    @cached_property
    def executable(self) -> str:
        """The path of the executable in the process's mount namespace; empty where /proc does not tell."""
        with suppress(OSError):
            return str((self._path / "exe").readlink()).removesuffix(" (deleted)")
        return ""

    @cached_property
    def cgroups(self) -> tuple[str, ...]:
        """The path of the control group; of the one in each hierarchy where there are several (version 1)."""
        lines = os.fsdecode(self._read("cgroup", _MAX_CGROUPS)).splitlines()
        return tuple(dict.fromkeys(line.split(":", 2)[2] for line in lines if line.count(":") >= 2))

    def environment(self, names: Collection[str], own_pid: int = 0) -> dict[str, str]:
        """The variables `names` that the process was started with; none of those that may not be read.

        Its file is open to the process's user alone; with `own_pid`, its pid in our pid namespace, others read memory.
        """
        if not names:
            return {}
        pairs = (os.fsdecode(variable).partition("=") for variable in self._environment(own_pid).split(b"\0"))
        return {name: value[:_MAX_VALUE] for name, _, value in pairs if name in names}

    def _environment(self, own_pid: int) -> bytes:
        with suppress(PermissionError):
            return self._read("environ", _MAX_ENVIRONMENT)
        start, end = self._stat(50), self._stat(51)  # zeros for those who may not trace the process
        if not own_pid or start >= end:
            return b""
        with suppress(OSError):  # not every kernel, sandbox or security module lets memory be read so
            return memory_of(own_pid, start, min(end - start, _MAX_ENVIRONMENT))
        return b""

    def _stat(self, field: int) -> int:
        """A number behind the name, by its place in proc_pid_stat(5). A name may hold anything."""
        stat = self._read("stat", _MAX_LINE)
        return int(stat[stat.rindex(b")") :].split()[field - 2])

    def _read(self, name: str, limit: int) -> bytes:
        with (self._path / name).open("rb", buffering=0) as file:
            chunks = iter(lambda: file.read(1 << 16), b"")
            content = bytearray()
            for chunk in chunks:
                content += chunk
                if len(content) >= limit:
                    break
            return bytes(content[:limit])
