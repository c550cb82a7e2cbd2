"""Why eBPF does not work somewhere, told in a sentence that says what to do."""

import os
from collections.abc import Sequence
from pathlib import Path

from otel_zernel_receivers.ebpf.capabilities import Capability, held

BTF = Path("/sys/kernel/btf/vmlinux")
"""The kernel's own type information."""


class Unavailable(Exception):
    """eBPF does not work here now. It may later: a package is installed, a container restarted with capabilities."""


def explain(reasons: Sequence[str]) -> str:
    """The likeliest cause, where each way to attach has failed for its reason."""
    if lacking := lacking_capabilities():
        return f"eBPF needs the capabilities CAP_BPF and CAP_PERFMON; this process lacks {' and '.join(lacking)}"
    if not BTF.exists():
        return f"eBPF needs a kernel with type information (CONFIG_DEBUG_INFO_BTF); there is no {BTF}"
    return f"eBPF does not work on this kernel ({os.uname().release}): {'; '.join(reasons)}"


def lacking_capabilities() -> list[str]:
    """What this process may not do, of what it needs."""
    needed, has = (Capability.CAP_BPF, Capability.CAP_PERFMON), held()
    return [capability.name for capability in needed if capability not in has]
