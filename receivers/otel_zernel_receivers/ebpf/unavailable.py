"""Why eBPF does not work somewhere, told in a sentence that says what to do."""

import platform
from collections.abc import Sequence
from pathlib import Path

from otel_zernel_receivers.ebpf.capabilities import Capability, held, in_user_namespace
from otel_zernel_receivers.ebpf.kernels import UNPRIVILEGED, too_old, version
from otel_zernel_receivers.ebpf.system_calls import BPF, PERF_EVENT_OPEN, refusal

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
    if sentence := refusal(BPF):
        return sentence
    if sentence := too_old(release, machine):
        return sentence
    if not btf.exists():
        return (
            f"eBPF needs the kernel's type information ({btf}), which is not there, and nothing works without it: use a "
            "kernel that is built with CONFIG_DEBUG_INFO_BTF, as those of distributions are; if a container hides the "
            "folder, mount it"
        )
    if _perf_is_the_way(reasons, release) and (sentence := _no_perf(release)):
        return sentence
    first_lines = dict.fromkeys(reason.partition("\n")[0] for reason in reasons)  # then comes the verifier's log
    return f"eBPF does not work on this kernel ({release}): {'; '.join(first_lines)}"


def _perf_is_the_way(reasons: Sequence[str], release: str) -> bool:
    """Whether nothing but perf links was tried, or could have worked."""
    return version(release) < UNPRIVILEGED or all(reason.startswith("perf") for reason in reasons)


def _no_perf(release: str) -> str | None:
    """Why perf links do not work, whose rules are their own."""
    if Capability.CAP_SYS_ADMIN not in held():
        return (
            "perf links, the only way to attach before Linux 6.6, need the capability CAP_SYS_ADMIN, which this process "
            f"lacks on {release}: run it as root, or give it this"
        )
    return refusal(PERF_EVENT_OPEN)


def _lacking_capabilities() -> list[str]:
    """What this process may not do, of what it needs."""
    needed, has = (Capability.CAP_BPF, Capability.CAP_PERFMON), held()
    return [capability.name for capability in needed if capability not in has]
