"""On machines and in containers that forbid part of eBPF, the receiver reports the cause and what to do."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.kernel.system_calls import BPF, PERF_EVENT_OPEN, SystemCall, refusal
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode
from tests.receivers.ebpf.capabilities import capabilities
from tests.receivers.ebpf.kernel.test_unavailable import LOAD, run_in
from tests.receivers.ebpf.watching import best_mode

DOCTOR = "from otel_zernel.cli import main; main(['doctor'])"
RECEIVER = """
import asyncio
from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver

async def main():
    context = make_context(clock=SystemClock())
    running = asyncio.create_task(EbpfReceiver(EbpfConfig(), context).run(Downstream()))
    await until(lambda: context.health.problems)
    print(context.health.problems["receivers::test"])
    running.cancel()
    await asyncio.wait([running])

asyncio.run(main())
"""


def only(mode: Mode) -> str:
    """Code that loads with one attach mode."""
    imported = "from otel_zernel_receivers.ebpf.probes.attach_modes import Mode"
    return imported + LOAD.replace("Limits()", f"Limits(), (Mode('{mode}'),)")


def without(call: SystemCall) -> list[str]:
    """A wrapper that runs a command under a seccomp profile which refuses the system call."""
    number = call.numbers[platform.machine()]
    return [sys.executable, str(Path(__file__).with_name("seccomp.py")), str(number)]


def findings(doctor: str, topic: str) -> list[str]:
    """The findings of doctor about a topic."""
    return re.findall(rf"^  (?:  |ok|!!)  {topic} +(.*)$", doctor, re.MULTILINE)


@pytest.mark.parametrize("held", [("sys_admin",), ("bpf", "perfmon")])
def test_a_seccomp_profile_that_refuses_bpf_is_named_once(loadable: None, held: tuple[str, ...]) -> None:
    """The profiles of Docker 20.10 and Podman 4.3 refuse it to processes with CAP_BPF and without CAP_SYS_ADMIN."""
    wrapper = [*without(BPF), *capabilities(*held)]
    (finding,) = findings(run_in(wrapper, DOCTOR).stdout, "attaching")
    assert finding.startswith("the seccomp profile of this container (or service) refuses the system call bpf(2)")
    assert "--security-opt seccomp=unconfined" in finding
    assert run_in(wrapper, RECEIVER).stdout.strip() == finding


def test_a_seccomp_profile_that_refuses_perf_events_disables_perf_links_only(loadable: None) -> None:
    result = run_in(without(PERF_EVENT_OPEN), only(Mode.PERF))
    assert "seccomp profile of this container (or service) refuses the system call perf_event_open(2)" in result.stderr
    doctor = run_in(without(PERF_EVENT_OPEN), DOCTOR).stdout
    if best_mode() is Mode.PERF:
        assert "refuses the system call perf_event_open(2)" in findings(doctor, "attaching")[0]
    else:
        assert findings(doctor, f"by {best_mode()}")[0].startswith("works")


def test_a_missing_system_call_is_not_blamed_on_a_seccomp_profile() -> None:
    unknown = SystemCall("bpf", {platform.machine(): 100_000}, ())
    filtered, free = (refusal(unknown, f"Name:\tpython\nSeccomp:\t{mode}\n") for mode in (2, 0))
    assert filtered
    assert filtered.startswith("the seccomp profile of this container")
    assert free
    assert free.startswith("the system call bpf(2) is refused (Function not implemented)")
    assert "gVisor" in free


def test_system_calls_that_reach_the_kernel_are_not_refused(loadable: None) -> None:
    assert [refusal(BPF), refusal(PERF_EVENT_OPEN)] == [None, None]


def test_cap_sys_admin_suffices_for_perf_links_at_every_level_of_perf_event_paranoid(loadable: None) -> None:
    """Kernels before July 2025 accept CAP_PERFMON at levels up to 2."""
    paranoid = Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
    little = run_in(capabilities("bpf", "perfmon"), only(Mode.PERF))
    assert not little.returncode or "needs the capability CAP_SYS_ADMIN; this process lacks it" in little.stderr
    much = run_in(capabilities("sys_admin"), only(Mode.PERF))
    assert not much.returncode, f"perf_event_paranoid is {paranoid}: {much.stderr}"


def test_the_capabilities_are_needed_even_if_unprivileged_bpf_is_allowed() -> None:
    if os.getuid():
        pytest.skip("needs root, to drop capabilities")
    (finding,) = findings(run_in(capabilities(), DOCTOR).stdout, "attaching")
    assert finding.startswith("eBPF needs the capabilities CAP_BPF and CAP_PERFMON; this process lacks CAP_BPF and ")


def test_without_btf_nothing_works_and_the_finding_names_the_file(loadable: None) -> None:
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/kernel/btf && exec "$@"', "-"]
    if subprocess.run([*hidden, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespace can be made here")
    doctor = run_in(hidden, DOCTOR).stdout
    (finding,) = findings(doctor, "attaching")
    assert finding.startswith(
        "eBPF needs the kernel's type information (BTF), but /sys/kernel/btf/vmlinux does not exist"
    )
    assert "CONFIG_DEBUG_INFO_BTF" in finding
    assert run_in(hidden, RECEIVER).stdout.strip() == finding
    assert not [mode for mode in Mode if findings(doctor, f"by {mode}")], "no mode works"
