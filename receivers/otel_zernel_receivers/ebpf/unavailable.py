"""Why eBPF does not work somewhere, told in a sentence that says what to do."""

import platform
from collections.abc import Sequence
from pathlib import Path

from otel_zernel_receivers.ebpf.capabilities import Capability, held, in_user_namespace
from otel_zernel_receivers.ebpf.kernels import UNPRIVILEGED, too_old, version

BTF = Path("/sys/kernel/btf/vmlinux")
"""The kernel's own type information."""


class Unavailable(Exception):
    """eBPF does not work here now. It may later: a package is installed, a container restarted with capabilities."""

    def __init__(self, sentence: str, details: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.details = details
        """What each try said in full, with the log of the kernel's verifier."""


def explain(
    reasons: Sequence[str], release: str = platform.release(), btf: Path = BTF, machine: str = platform.machine()
) -> str:
    """The likeliest cause, where each way to attach has failed for its reason, as one sentence."""
    if lacking := _lacking_capabilities():
        return (
            f"eBPF needs the capabilities CAP_BPF and CAP_PERFMON; this process lacks {' and '.join(lacking)}: run it "
            "as root, or give it these"
        )
    if in_user_namespace():
        return (
            "eBPF needs the capabilities CAP_BPF and CAP_PERFMON of the machine; this process has those of a user "
            "namespace (a rootless container), which do not count"
        )
    if sentence := too_old(release, machine):
        return sentence
    if version(release) < UNPRIVILEGED and Capability.CAP_SYS_ADMIN not in held():
        return f"eBPF needs the capability CAP_SYS_ADMIN before Linux 6.6, which this process lacks on {release}"
    if not btf.exists():
        return f"eBPF needs a kernel with type information (CONFIG_DEBUG_INFO_BTF); there is no {btf}"
    first_lines = dict.fromkeys(reason.partition("\n")[0] for reason in reasons)  # then comes the verifier's log
    return f"eBPF does not work on this kernel ({release}): {'; '.join(first_lines)}"


def _lacking_capabilities() -> list[str]:
    """What this process may not do, of what it needs."""
    needed, has = (Capability.CAP_BPF, Capability.CAP_PERFMON), held()
    return [capability.name for capability in needed if capability not in has]
