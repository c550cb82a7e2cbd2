"""Why eBPF does not work somewhere, told in a sentence that says what to do."""

import os
from collections.abc import Sequence
from pathlib import Path

_CAPABILITIES = {"CAP_BPF": 39, "CAP_PERFMON": 38}  # linux/capability.h
_BTF = Path("/sys/kernel/btf/vmlinux")


class Unavailable(Exception):
    """eBPF does not work here now. It may later: a package is installed, a container restarted with capabilities."""


def explain(reasons: Sequence[str]) -> str:
    """The likeliest cause, where each way to attach has failed for its reason."""
    if lacking := lacking_capabilities():
        return f"eBPF needs the capabilities CAP_BPF and CAP_PERFMON; this process lacks {' and '.join(lacking)}"
    if not _BTF.exists():
        return f"eBPF needs a kernel with type information (CONFIG_DEBUG_INFO_BTF); there is no {_BTF}"
    return f"eBPF does not work on this kernel ({os.uname().release}): {'; '.join(reasons)}"


def lacking_capabilities() -> list[str]:
    """What this process may not do, of what it needs."""
    status = Path("/proc/self/status").read_text()
    (effective,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
    return [name for name, bit in _CAPABILITIES.items() if not int(effective, 16) >> bit & 1]
