"""Explains in one sentence why eBPF does not work here, and what to do."""

import platform
from collections.abc import Sequence
from pathlib import Path

from otel_zernel_receivers.ebpf.kernel.capabilities import Capability, held, in_user_namespace
from otel_zernel_receivers.ebpf.kernel.system_calls import BPF, BPF_NUMBERS, PERF_EVENT_OPEN, refusal
from otel_zernel_receivers.ebpf.kernel.versions import UNPRIVILEGED, too_old, version

BTF = Path("/sys/kernel/btf/vmlinux")
"""The kernel's own type information."""

_READS_MEMORY_OF_THE_KERNEL = "bpf_probe_read#4"
"""The verifier's log contains this helper if the kernel is in lockdown mode confidentiality.

libbpf then concludes that the kernel has no bpf_probe_read_user, as before Linux 5.5, and calls this helper instead.
"""


class Unavailable(Exception):
    """eBPF does not work here now. It may work later, for example after a package is installed."""

    def __init__(self, sentence: str, details: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.details = details
        """The full error of each attempt, with the log of the kernel's verifier."""


def explain(
    reasons: Sequence[str], release: str = platform.release(), btf: Path = BTF, machine: str = platform.machine()
) -> str:
    """The most likely cause, as one sentence.

    `reasons` are the errors of the attach modes. Every mode has failed.
    """
    return (
        _no_objects(machine)
        or _no_capabilities()
        or refusal(BPF)
        or too_old(release, machine)
        or _no_types(btf)
        or _no_perf(reasons, release)
        or _locked_down(reasons)
        or _unexplained(reasons, release)
    )


def _no_objects(machine: str) -> str | None:
    if machine in BPF_NUMBERS:
        return None
    return f"the ebpf receiver runs on x86_64 and aarch64 only; this machine is {machine}"


def _no_capabilities() -> str | None:
    needed, has = (Capability.CAP_BPF, Capability.CAP_PERFMON), held()
    if lacking := [capability.name for capability in needed if capability not in has]:
        return (
            f"eBPF needs the capabilities CAP_BPF and CAP_PERFMON; this process lacks {' and '.join(lacking)}: run the "
            "collector as root, or grant it these capabilities"
        )
    if in_user_namespace():
        return (
            "eBPF needs the capabilities CAP_BPF and CAP_PERFMON in the initial user namespace; this process holds "
            "them in another one (as in a rootless container), which the kernel does not accept: run the collector as "
            "root of the machine"
        )
    return None


def _no_types(btf: Path) -> str | None:
    """Every object needs BTF, so no attach mode works without."""
    if btf.exists():
        return None
    return (
        f"eBPF needs the kernel's type information (BTF), but {btf} does not exist: use a kernel that is built with "
        "CONFIG_DEBUG_INFO_BTF, as those of distributions are; if a container hides the folder, mount it"
    )


def _no_perf(reasons: Sequence[str], release: str) -> str | None:
    """Why perf links do not work, if they were the only attach mode that could have worked."""
    if version(release) >= UNPRIVILEGED and not all(reason.startswith("perf") for reason in reasons):
        return None
    if Capability.CAP_SYS_ADMIN not in held():
        return (
            "attaching by perf links, the only attach mode before Linux 6.6, needs the capability CAP_SYS_ADMIN; this "
            f"process lacks it (Linux {release}): run the collector as root, or grant it this capability"
        )
    return refusal(PERF_EVENT_OPEN)


def _locked_down(reasons: Sequence[str]) -> str | None:
    if not any(_READS_MEMORY_OF_THE_KERNEL in reason for reason in reasons):
        return None
    return (
        "the kernel is in lockdown mode confidentiality, in which libbpf cannot load programs that read the memory of "
        "processes: boot it with lockdown=integrity, which permits everything that the receiver needs"
    )


def _unexplained(reasons: Sequence[str], release: str) -> str:
    first_lines = dict.fromkeys(reason.partition("\n")[0] for reason in reasons)  # the verifier's log follows
    return (
        f"eBPF does not work on this kernel ({release}): {'; '.join(first_lines)}; otel-zernel doctor --verbose prints "
        "the log of the kernel's verifier"
    )
