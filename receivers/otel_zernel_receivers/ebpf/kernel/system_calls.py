"""Detects system calls that a seccomp profile or a sandbox refuses.

Each call is tried with arguments that are always invalid and change nothing. If the call reaches the kernel, it fails
with EINVAL.
"""

import ctypes
import errno
import os
from dataclasses import dataclass
from pathlib import Path

BPF_NUMBERS = {"x86_64": 321, "aarch64": 280}
_UNSIGNED_LONG = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A system call, with arguments that every kernel rejects."""

    name: str
    numbers: dict[str, int]
    """The number on each machine, as in asm/unistd.h."""
    invalid: tuple[int, ...]

    def refused_with(self) -> int | None:
        """The errno of the refusal; None if the call reaches the kernel. The process must hold the capabilities."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall(*map(ctypes.c_ulong, (self.numbers[os.uname().machine], *self.invalid)))
        return None if ctypes.get_errno() == errno.EINVAL else ctypes.get_errno()


BPF = SystemCall("bpf", BPF_NUMBERS, (_UNSIGNED_LONG, 0, 0))
"""Tried with a command that does not exist."""
PERF_EVENT_OPEN = SystemCall("perf_event_open", {"x86_64": 298, "aarch64": 241}, (0, 0, 0, 0, _UNSIGNED_LONG))
"""Tried with flags that do not exist."""


def refusal(call: SystemCall, status: str | None = None) -> str | None:
    """A sentence if the call is refused, else None. `status` is the text of /proc/self/status."""
    number = call.refused_with()
    if number is None:
        return None
    if _is_filtered(status if status is not None else Path("/proc/self/status").read_text()):
        return (
            f"the seccomp profile of this container (or service) refuses the system call {call.name}(2), although the "
            "process holds the capabilities: allow bpf and perf_event_open in the profile, or run without one (Docker: "
            "--security-opt seccomp=unconfined; Kubernetes: seccompProfile of type Unconfined)"
        )
    return (
        f"the system call {call.name}(2) is refused ({os.strerror(number)}), although the process holds the "
        "capabilities: the kernel was built without it, or a sandbox such as gVisor replaces the kernel; run the "
        "collector on the host"
    )


def _is_filtered(status: str) -> bool:
    """Whether this process has a seccomp filter."""
    return any(line.split() == ["Seccomp:", "2"] for line in status.splitlines())
