"""Translates pids of the scanned /proc into pids of the collector's pid namespace.

The programs in the kernel use the collector's pid namespace (`bpf_get_ns_current_pid_tgid`). They can identify
processes of that namespace only, not of namespaces below it. In the machine's initial namespace they can identify all
processes. If the host's /proc is mounted into the collector's container, it shows other pids.
"""

import fcntl
import os
import re
from functools import cached_property
from pathlib import Path

from otel_zernel_libraries.pid_namespace import INITIAL

_NS_GET_PARENT = 0xB702  # ioctl_ns(2)
_NSPID = re.compile(rb"^NSpid:(.*)$", re.MULTILINE)


class PidNamespace:
    """The collector's pid namespace, seen from a mounted /proc."""

    def __init__(self, proc_root: Path) -> None:
        self._root = proc_root

    def pid_of(self, pid: int) -> int | None:
        """The pid in the collector's namespace of process `pid` of that /proc; None if it has none there.

        Raises OSError if the process has ended.
        """
        if self._depth == 1:  # the usual case: the collector's own /proc
            return pid
        pids = self._pids(str(pid))
        below = len(pids) - self._depth
        return pids[self._depth - 1] if self._depth and below >= 0 and self._is_above(pid, below) else None

    @property
    def is_initial(self) -> bool:
        """Whether it is the machine's initial namespace, whose pids the kernel uses itself."""
        return self._own == INITIAL

    def can_identify(self, pid: int) -> bool:
        """Whether programs in the kernel can identify process `pid` of that /proc.

        Raises OSError if /proc denies access or the process has ended.
        """
        if not self._own or self._own == INITIAL:
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
        """The number of namespaces from /proc's to the collector's, inclusive; 0 if it does not show the collector."""
        try:
            return len(self._pids("self"))
        except OSError:
            return 0

    def _pids(self, process: str) -> list[int]:
        """The pids of a process, from the namespace of /proc to its own. Empty before Linux 4.1."""
        match = _NSPID.search((self._root / process / "status").read_bytes())
        return [int(pid) for pid in match[1].split()] if match else []

    def _is_above(self, pid: int, levels: int) -> bool:
        """Whether the namespace `levels` above that of process `pid` is the collector's."""
        fd = os.open(self._root / str(pid) / "ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        try:
            for _ in range(levels):
                parent = fcntl.ioctl(fd, _NS_GET_PARENT)
                os.close(fd)
                fd = parent
            return os.path.samestat(os.fstat(fd), (self._root / "self/ns/pid").stat())
        except PermissionError:  # the collector may not see the parent
            return False
        finally:
            os.close(fd)
