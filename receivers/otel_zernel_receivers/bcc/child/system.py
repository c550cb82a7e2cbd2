"""The calls to Linux that Python lacks: prctl, unshare, mount, and perf_event_open."""

import ctypes
import fcntl
import os
import platform
import signal
import struct
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS = 0x20000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000
_CAP_SYS_ADMIN = 21
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_PERF_FLAG_FD_CLOEXEC = 8
_SET_BPF, _ENABLE = 0x40042408, 0x2400
_UPROBE_PMU = Path("/sys/bus/event_source/devices/uprobe/type")
_ATTRIBUTES = struct.Struct("<IIQQQQQIIQQ")
"""perf_event_attr up to config2, PERF_ATTR_SIZE_VER1: type, size, config, ..., path (config1), offset (config2)."""
TRACING = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")


def die_with_parent(parent: int) -> None:
    """Lets the kernel kill this process when its parent, whose pid is given, ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def may_trace() -> bool:
    """Whether this process holds CAP_SYS_ADMIN, without which the kernel refuses perf links of uprobes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff"))
    return bool(effective >> _CAP_SYS_ADMIN & 1)


def provide_tracefs() -> None:
    """Mounts tracefs for this process alone, if the machine has it nowhere. BCC needs it for tracepoints only."""
    if any(Path(folder, "events").is_dir() for folder in TRACING):
        return
    if _LIBC.unshare(_CLONE_NEWNS) == 0:
        _LIBC.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None)  # later mounts of the machine still arrive here
        _LIBC.mount(b"tracefs", TRACING[0].encode(), b"tracefs", 0, None)


def attach_uprobe(program: int, path: str, offset: int, counter: int, pid: int) -> int:
    """Runs a loaded program whenever a process executes the instruction at an offset in a file. Returns the link's fd.

    `counter` is the offset of the probe's semaphore in the file, or 0. The kernel raises it in every process, and
    lowers it when the fd is closed, also by SIGKILL. Raises `OSError`.
    """
    name = ctypes.create_string_buffer(os.fsencode(path))
    kind = int(_UPROBE_PMU.read_text())
    place = ctypes.addressof(name)
    attributes = _ATTRIBUTES.pack(kind, _ATTRIBUTES.size, counter << 32, 0, 0, 0, 0, 0, 0, place, offset)
    arguments = (pid, 0 if pid == -1 else -1, -1, _PERF_FLAG_FD_CLOEXEC)
    fd = _LIBC.syscall(_PERF_EVENT_OPEN[platform.machine()], attributes, *arguments)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    fcntl.ioctl(fd, _SET_BPF, program)
    fcntl.ioctl(fd, _ENABLE, 0)
    return int(fd)
