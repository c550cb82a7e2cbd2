"""Why eBPF does not work somewhere, told in a sentence that says what to do."""

import platform
from collections.abc import Sequence
from pathlib import Path

from otel_zernel_receivers.ebpf.kernel.capabilities import Capability, held, in_user_namespace
from otel_zernel_receivers.ebpf.kernel.system_calls import BPF, BPF_NUMBERS, PERF_EVENT_OPEN, refusal
from otel_zernel_receivers.ebpf.kernel.versions import UNPRIVILEGED, too_old, version

BTF = Path("/sys/kernel/btf/vmlinux")
"""The kernel's own type information."""

_READS_MEMORY_OF_THE_KERNEL = "bpf_probe_read#4"
"""What libbpf makes of bpf_probe_read_user, which we call, if it takes a locked down kernel for one before 5.5."""


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
    return (
        _no_objects(machine)
        or _no_capabilities()
        or refusal(BPF)
        or too_old(release, machine)
        or _no_types(btf)
        or _no_perf(reasons, release)
        or _locked_down(reasons)
        or _as_it_was_said(reasons, release)
    )


def _no_objects(machine: str) -> str | None:
    if machine in BPF_NUMBERS:
        return None
    return f"the ebpf receiver works on x86_64 and aarch64; this machine is {machine}"


def _no_capabilities() -> str | None:
    needed, has = (Capability.CAP_BPF, Capability.CAP_PERFMON), held()
    if lacking := [capability.name for capability in needed if capability not in has]:
        return (
            f"eBPF needs the capabilities CAP_BPF and CAP_PERFMON; this process lacks {' and '.join(lacking)}: run it "
            "as root, or give it these"
        )
    if in_user_namespace():
        return (
            "eBPF needs the capabilities CAP_BPF and CAP_PERFMON of the machine; this process has those of a user "
            "namespace (a rootless container), which do not count"
        )
    return None


def _no_types(btf: Path) -> str | None:
    """Every object reads it: no mode does without."""
    if btf.exists():
        return None
    return (
        f"eBPF needs the kernel's type information ({btf}), which is not there, and nothing works without it: use a "
        "kernel that is built with CONFIG_DEBUG_INFO_BTF, as those of distributions are; if a container hides the "
        "folder, mount it"
    )


def _no_perf(reasons: Sequence[str], release: str) -> str | None:
    """Why perf links do not work, where nothing else was tried or could have worked."""
    if version(release) >= UNPRIVILEGED and not all(reason.startswith("perf") for reason in reasons):
        return None
    if Capability.CAP_SYS_ADMIN not in held():
        return (
            "perf links, the only way to attach before Linux 6.6, need the capability CAP_SYS_ADMIN; this process "
            f"lacks it (Linux {release}): run it as root, or give it this"
        )
    return refusal(PERF_EVENT_OPEN)


def _locked_down(reasons: Sequence[str]) -> str | None:
    if not any(_READS_MEMORY_OF_THE_KERNEL in reason for reason in reasons):
        return None
    return (
        "the kernel is locked down in the mode confidentiality, in which libbpf cannot load programs that read the "
        "memory of processes: boot it with lockdown=integrity, with which everything works"
    )


def _as_it_was_said(reasons: Sequence[str], release: str) -> str:
    first_lines = dict.fromkeys(reason.partition("\n")[0] for reason in reasons)  # then comes the verifier's log
    return f"eBPF does not work on this kernel ({release}): {'; '.join(first_lines)}"
