"""Machines that forbid part of eBPF, and the finding that `doctor` must print on each."""

from dataclasses import dataclass

from tests.kernels.catalogue import Kernel, named


@dataclass(frozen=True, slots=True)
class Condition:
    """A kernel, and the restriction that it is booted with."""

    name: str
    kernel: Kernel
    finding: str = ""
    """The beginning of doctor's finding if nothing works; empty if the receiver must count as usual."""
    arguments: str = ""
    """Added to the kernel's command line."""
    before: str = ""
    """A shell command that runs first."""
    types: bool = True
    """Whether the kernel has type information (BTF)."""
    tests: tuple[str, ...] = ()
    """The tests that must pass where the receiver counts."""


_OLD, _NEW = named("6.1-x86_64"), named("6.12-x86_64")
_COUNTING = (
    "tests/receivers/ebpf/jobs/test_launches.py::test_every_launch_of_every_thread_is_counted",
    "tests/receivers/ebpf/jobs/test_scheduling.py::test_time_off_the_cpu_and_cpu_bursts_are_emitted",
)
_HARDENED = "tests/receivers/ebpf/kernel/test_hardened.py"
_PERF = (f"{_HARDENED}::test_cap_sys_admin_suffices_for_perf_links_at_every_level_of_perf_event_paranoid",)
_FEW_CAPABILITIES = ("tests/receivers/ebpf/test_collector.py::test_few_capabilities_suffice_for_counts_and_samples",)
_UNPRIVILEGED = (f"{_HARDENED}::test_the_capabilities_are_needed_even_if_unprivileged_bpf_is_allowed",)


def _lockdown(kernel: Kernel, mode: str, finding: str = "", tests: tuple[str, ...] = ()) -> Condition:
    return Condition(f"lockdown={mode}", kernel, finding, arguments=f"lockdown={mode}", tests=tests)


def _sysctl(kernel: Kernel, name: str, value: int, tests: tuple[str, ...]) -> Condition:
    command = f"echo {value} > /proc/sys/kernel/{name}"
    return Condition(f"{name}={value}", kernel, before=command, tests=tests)


CONDITIONS = (
    *(_lockdown(kernel, "integrity", tests=_COUNTING) for kernel in (_OLD, _NEW)),
    *(
        _lockdown(kernel, "confidentiality", "the kernel is in lockdown mode confidentiality")
        for kernel in (_OLD, _NEW)
    ),
    _sysctl(_OLD, "perf_event_paranoid", 2, _PERF),
    _sysctl(_OLD, "perf_event_paranoid", 4, _PERF),
    _sysctl(_NEW, "perf_event_paranoid", 4, _FEW_CAPABILITIES),
    _sysctl(_OLD, "unprivileged_bpf_disabled", 0, _UNPRIVILEGED),
    _sysctl(_OLD, "unprivileged_bpf_disabled", 1, _UNPRIVILEGED),
    Condition(
        "no type information",
        _OLD,
        "eBPF needs the kernel's type information",
        before="mount -t tmpfs none /sys/kernel/btf",
        types=False,
    ),
)
