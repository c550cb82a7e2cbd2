"""Which Linux gives what. tests/receivers/ebpf/kernel_features.tsv proves the numbers from the objects themselves."""

import platform
import re

Version = tuple[int, ...]
"""The first two numbers of a release: (6, 1)."""

OLDEST: dict[str, Version] = {"x86_64": (5, 15), "aarch64": (6, 0)}
"""Perf links with the cookies that tell functions apart; on arm64 also a compiler (JIT) for atomic instructions,
and for tail calls in programs that call functions."""
UNPRIVILEGED: Version = (6, 6)
"""uprobe.multi. Perf links need CAP_SYS_ADMIN."""
CHEAPEST: Version = (6, 13)
"""Sessions: one program for both ends of a call."""
SESSION_CONTEXT: Version = (7, 0)
"""bpf_session_is_return() takes an argument: another variant of the sessions."""
SIMULATED_NOP: Version = (6, 13)
"""On arm64 a `nop` is simulated. Commit ac4ad5c09b34, "arm64: insn: Simulate nop instruction"."""

_BACKPORTS = re.compile(r"\.el9[._]")
"""Red Hat's kernels of 9 keep an old number and get newer features: RHEL 9.6 has 5.14 with the eBPF of 6.12 (its
release notes)."""


def version(release: str) -> Version:
    """The version that `uname -r` names, as in `6.1.0-13-amd64`. If it names none, or has backports: newer than all."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if not numbers or _BACKPORTS.search(release):
        return (1 << 16,)
    return tuple(map(int, numbers.groups()))


def too_old(release: str, machine: str) -> str | None:
    """One sentence on what each newer Linux would give, if this one gives nothing."""
    oldest = OLDEST.get(machine, max(OLDEST.values()))
    if version(release) >= oldest:
        return None
    return (
        f"Linux {release} is too old for eBPF on {machine}: {_text(oldest)} gives everything (launches, waits, NCCL, "
        f"PyTorch's scopes, time off the CPU, reads), with CAP_SYS_ADMIN; {_text(UNPRIVILEGED)} needs no "
        f"CAP_SYS_ADMIN; {_text(CHEAPEST)} costs least"
    )


def _text(numbers: Version) -> str:
    return ".".join(map(str, numbers))


RUNNING = version(platform.release())
"""The kernel that we are on."""
