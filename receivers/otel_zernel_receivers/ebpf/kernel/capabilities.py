"""The capabilities of this process, as far as eBPF needs them."""

from enum import IntEnum
from pathlib import Path


class Capability(IntEnum):
    """Capabilities by their numbers in linux/capability.h."""

    CAP_DAC_READ_SEARCH = 2
    CAP_SYS_PTRACE = 19
    CAP_SYS_ADMIN = 21
    CAP_PERFMON = 38
    CAP_BPF = 39
    CAP_CHECKPOINT_RESTORE = 40


_OF_ADMIN = {Capability.CAP_PERFMON, Capability.CAP_BPF, Capability.CAP_CHECKPOINT_RESTORE}
"""Linux 5.8 and 5.9 split these off CAP_SYS_ADMIN. CAP_SYS_ADMIN still includes them."""


def held(status: str | None = None) -> set[Capability]:
    """The effective capabilities in `status`, the text of a /proc/PID/status; by default this process's."""
    text = status or Path("/proc/self/status").read_text()
    effective = next(int(line.split()[1], 16) for line in text.splitlines() if line.startswith("CapEff"))
    capabilities = {capability for capability in Capability if effective >> capability & 1}
    return capabilities | _OF_ADMIN if Capability.CAP_SYS_ADMIN in capabilities else capabilities


def in_user_namespace(uid_map: str | None = None) -> bool:
    """Whether the process is in a user namespace other than the initial one, where its capabilities do not count.

    `uid_map` is the text of a /proc/PID/uid_map; by default this process's.
    """
    text = uid_map if uid_map is not None else Path("/proc/self/uid_map").read_text()
    return text.split() != ["0", "0", str(2**32 - 1)]
