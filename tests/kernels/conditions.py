"""Machines that forbid part of eBPF, and what the receiver must say on each."""

from dataclasses import dataclass

from tests.kernels.catalogue import Kernel, named


@dataclass(frozen=True, slots=True)
class Condition:
    """A kernel that is booted so."""

    name: str
    kernel: Kernel
    says: str = ""
    """The end of doctor's line where nothing works, in part; empty where the receiver must count as ever."""
    arguments: str = ""
    """Added to the kernel's command line."""
    before: str = ""
    """A shell command, before anything else runs."""
    types: bool = True
    """Whether the kernel has type information (BTF)."""


_CONFIDENTIALITY = "the kernel is locked down in the mode confidentiality"
_OLD, _NEW = named("6.1-x86_64"), named("6.12-x86_64")
_SYSCTL = "echo {} > /proc/sys/kernel/{}".format

CONDITIONS = (
    *(Condition("lockdown=integrity", kernel, arguments="lockdown=integrity") for kernel in (_OLD, _NEW)),
    *(
        Condition("lockdown=confidentiality", kernel, _CONFIDENTIALITY, arguments="lockdown=confidentiality")
        for kernel in (_OLD, _NEW)
    ),
    *(
        Condition(f"{name}={value}", _OLD, before=_SYSCTL(value, name))
        for name, value in (
            ("perf_event_paranoid", 4),
            ("unprivileged_bpf_disabled", 0),
            ("unprivileged_bpf_disabled", 1),
        )
    ),
    Condition(
        "no type information",
        _OLD,
        "eBPF needs the kernel's type information",
        before="mount -t tmpfs none /sys/kernel/btf",
        types=False,
    ),
)
