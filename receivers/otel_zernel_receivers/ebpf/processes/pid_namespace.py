"""Pids as the collector's own programs in the kernel see them.

They use the collector's pid namespace (`bpf_get_ns_current_pid_tgid`), and know only processes of that very namespace;
the machine's own (initial) one excepted, from which all can be named. A /proc of the host that is mounted into the
collector's container numbers processes otherwise.
"""

import fcntl
import os
import re
from functools import cached_property
from pathlib import Path

_NS_GET_PARENT = 0xB702  # ioctl_ns(2)
_INITIAL = 0xEFFFFFFC  # PROC_PID_INIT_INO (include/linux/proc_ns.h): the inode of the machine's own namespace
_NSPID = re.compile(rb"^NSpid:(.*)$", re.MULTILINE)


class PidNamespace:
    """The collector's pid namespace, seen from a mounted /proc."""

    def __init__(self, proc_root: Path) -> None:
        self._root = proc_root

    def pid_of(self, pid: int) -> int | None:
        """The pid here of process `pid` of that /proc; None for a process outside. Raises OSError if it is gone."""
        if self._depth == 1:  # the usual case: the collector's own /proc
            return pid
        pids = self._pids(str(pid))
        below = len(pids) - self._depth
        return pids[self._depth - 1] if self._depth and below >= 0 and self._is_above(pid, below) else None

    def names(self, pid: int) -> bool:
        """Whether our programs can name process `pid` of that /proc. Raises OSError if it may not be looked at."""
        if not self._own or self._own == _INITIAL:
            return True
        return (self._root / str(pid) / "ns/pid").stat().st_ino == self._own

    @cached_property
    def _own(self) -> int:
        """The inode of the collector's namespace; 0 if /proc does not show the collector."""
        try:
            return (self._root / "self/ns/pid").stat().st_ino
        except OSError:
            return 0

    @cached_property
    def _depth(self) -> int:
        """How many namespaces lie from that of /proc to the collector's; 0 if /proc does not show the collector."""
        try:
            return len(self._pids("self"))
        except OSError:
            return 0

    def _pids(self, process: str) -> list[int]:
        """The pids of a process, from the namespace of /proc to its own. Empty before Linux 4.1."""
        found = _NSPID.search((self._root / process / "status").read_bytes())
        return [int(pid) for pid in found[1].split()] if found else []

    def _is_above(self, pid: int, levels: int) -> bool:
        """Whether the namespace `levels` above the one of `pid` is the collector's."""
        fd = os.open(self._root / str(pid) / "ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        try:
            for _ in range(levels):
                parent = fcntl.ioctl(fd, _NS_GET_PARENT)
                os.close(fd)
                fd = parent
            return os.path.samestat(os.fstat(fd), (self._root / "self/ns/pid").stat())
        except PermissionError:  # a parent outside of what the collector may see
            return False
        finally:
            os.close(fd)
