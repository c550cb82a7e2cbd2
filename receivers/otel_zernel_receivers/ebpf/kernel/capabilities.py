"""The capabilities that this process has, of those that matter to eBPF."""

from enum import IntEnum
from pathlib import Path


class Capability(IntEnum):
    """By number, as in linux/capability.h."""

    CAP_DAC_READ_SEARCH = 2
    CAP_SYS_PTRACE = 19
    CAP_SYS_ADMIN = 21
    CAP_PERFMON = 38
    CAP_BPF = 39
    CAP_CHECKPOINT_RESTORE = 40


_OF_ADMIN = {Capability.CAP_PERFMON, Capability.CAP_BPF, Capability.CAP_CHECKPOINT_RESTORE}
"""Were split off CAP_SYS_ADMIN in Linux 5.8 and 5.9, which still gives them."""


def held(status: str | None = None) -> set[Capability]:
    """The effective capabilities by the text of a /proc/PID/status, this process's if none is given."""
    text = status or Path("/proc/self/status").read_text()
    effective = next(int(line.split()[1], 16) for line in text.splitlines() if line.startswith("CapEff"))
    found = {capability for capability in Capability if effective >> capability & 1}
    return found | _OF_ADMIN if Capability.CAP_SYS_ADMIN in found else found


def in_user_namespace(uid_map: str | None = None) -> bool:
    """Whether the capabilities are those of a user namespace below the machine's own, by a /proc/PID/uid_map."""
    text = uid_map if uid_map is not None else Path("/proc/self/uid_map").read_text()
    return text.split() != ["0", "0", str(2**32 - 1)]
