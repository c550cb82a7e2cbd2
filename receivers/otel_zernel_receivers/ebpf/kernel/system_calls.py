"""System calls that are refused before the kernel looks at what is asked: by a seccomp profile, or by a sandbox.

Each is tried with arguments that are wrong for everybody and change nothing. A kernel that gets the call says EINVAL.
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
    """A system call and arguments that no kernel takes."""

    name: str
    numbers: dict[str, int]
    """By machine, as in asm/unistd.h."""
    invalid: tuple[int, ...]

    def refused_with(self) -> int | None:
        """The errno of the refusal; None if the call gets to the kernel. The capabilities must be held."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall(*map(ctypes.c_ulong, (self.numbers[os.uname().machine], *self.invalid)))
        return None if ctypes.get_errno() == errno.EINVAL else ctypes.get_errno()


BPF = SystemCall("bpf", BPF_NUMBERS, (_UNSIGNED_LONG, 0, 0))
"""With a command that does not exist."""
PERF_EVENT_OPEN = SystemCall("perf_event_open", {"x86_64": 298, "aarch64": 241}, (0, 0, 0, 0, _UNSIGNED_LONG))
"""With flags that do not exist."""


def refusal(call: SystemCall, status: str | None = None) -> str | None:
    """One sentence if the call is refused; `status` is the text of /proc/self/status."""
    number = call.refused_with()
    if number is None:
        return None
    if _is_filtered(status if status is not None else Path("/proc/self/status").read_text()):
        return (
            f"the seccomp profile of this container (or service) refuses the system call {call.name}(2), although the "
            "capabilities are held: allow bpf and perf_event_open in the profile, or run without one (Docker: "
            "--security-opt seccomp=unconfined; Kubernetes: seccompProfile of type Unconfined)"
        )
    return (
        f"the system call {call.name}(2) is refused here ({os.strerror(number)}), although the capabilities are held: "
        "the kernel is built without it, or a sandbox such as gVisor stands in for the kernel; run the collector on "
        "the machine itself"
    )


def _is_filtered(status: str) -> bool:
    """Whether a seccomp filter is on this process."""
    return any(line.split() == ["Seccomp:", "2"] for line in status.splitlines())
