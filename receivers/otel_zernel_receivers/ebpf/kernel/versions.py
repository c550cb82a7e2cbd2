"""The Linux versions that introduced the features which the receiver uses.

A test derives the numbers from the objects and from tests/receivers/ebpf/kernel/kernel_features.tsv.
"""

import platform
import re

Version = tuple[int, ...]
"""The first two numbers of a release: (6, 1)."""

OLDEST: dict[str, Version] = {"x86_64": (5, 15), "aarch64": (6, 0)}
"""Perf links with cookies, which identify the probed function.

On arm64 also a JIT compiler for atomic instructions, and for tail calls in programs that call functions.
"""
UNPRIVILEGED: Version = (6, 6)
"""uprobe.multi, which does not need CAP_SYS_ADMIN as perf links do."""
CHEAPEST: Version = (6, 13)
"""Sessions, with one program for both ends of a call."""
SESSION_CONTEXT: Version = (7, 0)
"""bpf_session_is_return() has an argument, so sessions need another object."""
FOUR_ARGUMENTS: Version = (5, 18)
"""The tracepoint sched_switch has the state of the task that leaves the CPU."""
SIMULATED_NOP: Version = (6, 13)
"""The kernel simulates `nop` on arm64: commit ac4ad5c09b34, "arm64: insn: Simulate nop instruction"."""

_BACKPORTS = re.compile(r"\.el9[._]")
"""Kernels of Red Hat Enterprise Linux 9 keep an old number and get newer features. According to its release notes, RHEL
9.6 has 5.14 with the eBPF of Linux 6.12."""


def version(release: str) -> Version:
    """The version in a release such as `6.1.0-13-amd64`.

    A release without one, or with backports, is newer than all.
    """
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if not numbers or _BACKPORTS.search(release):
        return (1 << 16,)
    return tuple(map(int, numbers.groups()))


def too_old(release: str, machine: str) -> str | None:
    """Sentences with the Linux versions to upgrade to, if this release is too old; else None."""
    oldest = OLDEST.get(machine, max(OLDEST.values()))
    if version(release) >= oldest:
        return None
    return (
        f"Linux {release} is too old for the ebpf receiver on {machine}: upgrade to {_text(oldest)} or newer. "
        f"{_text(oldest)} supports all its metrics (launches, waits, NCCL, PyTorch's scopes, time off the CPU, reads). "
        f"It needs CAP_SYS_ADMIN; {_text(UNPRIVILEGED)} and newer do not. "
        f"On {_text(CHEAPEST)} and newer, probes cost least"
    )


def _text(numbers: Version) -> str:
    return ".".join(map(str, numbers))


RUNNING = version(platform.release())
"""The version of the running kernel."""
