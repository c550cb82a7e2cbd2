"""Where eBPF does not work, the receiver says why, stays, and tries again."""

import asyncio
import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.kernel.unavailable import Unavailable, explain
from otel_zernel_receivers.ebpf.kernel.versions import version
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, load
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver
from otel_zernel_receivers.ebpf.session import Session
from otel_zernel_receivers.ebpf.tables.tables import Limits

ROOT = Path(__file__).parents[4]


async def test_trouble_shows_in_health_until_it_is_over(loadable: None, caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    def third_time_lucky(limits: Limits) -> LoadedProbes:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unavailable("eBPF needs a penny")
        return load(limits)

    context = make_context(clock=SystemClock())
    config = EbpfConfig.model_validate({"rescan_interval": "50ms", "interval": "10ms"})
    receiver = EbpfReceiver(config, context, lambda config, context: Session.open(config, context, third_time_lucky))
    running = asyncio.create_task(receiver.run(Downstream()))
    await until(lambda: context.health.problems == {"receivers::test": "eBPF needs a penny"})
    await until(lambda: tries == 3 and not context.health.problems)
    assert caplog.text.count("a penny") == 1, "said once, not at every try"
    running.cancel()
    await asyncio.wait([running])


def run_in(wrapper: list[str], code: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python code behind a wrapper that changes what a process has or may."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/receivers"}
    command = [*wrapper, sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


LOAD = """
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.tables.tables import Limits
load(Limits())
"""


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv (util-linux) is not installed")
@pytest.mark.parametrize(
    ("held", "told"), [("-all", "lacks CAP_BPF and CAP_PERFMON"), ("-all,+bpf", "lacks CAP_PERFMON")]
)
def test_lacking_capabilities_are_named(held: str, told: str) -> None:
    if os.getuid():
        pytest.skip("needs root, to have capabilities that can be taken away")
    result = run_in(["setpriv", f"--bounding-set={held}", f"--inh-caps={held}"], LOAD)
    assert f"this process {told}: run it as root" in result.stderr.splitlines()[-1]


def test_capabilities_of_a_user_namespace_are_told_from_those_of_the_machine() -> None:
    wrapper = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*wrapper, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespace can be made here")
    last = run_in(wrapper, LOAD).stderr.splitlines()[-1]
    assert "this process has those of a user namespace (a rootless container)" in last


@pytest.fixture
def privileged() -> None:
    if os.getuid():
        pytest.skip("without privileges, those are what is missing first")


@pytest.mark.parametrize(
    ("release", "machine", "enough"),
    [
        ("5.10.0-30-amd64", "x86_64", "5.15 gives everything"),
        ("5.15.0-1072-nvidia", "aarch64", "6.0 gives everything"),
    ],
)
def test_a_kernel_that_is_too_old_is_told_what_newer_ones_give(
    privileged: None, release: str, machine: str, enough: str
) -> None:
    told = explain(["session: no"], release, machine=machine)
    assert told.startswith(f"Linux {release} is too old for eBPF on {machine}: {enough} (launches, ")
    for part in ("with CAP_SYS_ADMIN", "6.6 needs no CAP_SYS_ADMIN", "6.13 costs least"):
        assert part in told


@pytest.mark.parametrize(
    ("release", "numbers"),
    [
        ("6.1.0-13-amd64", (6, 1)),
        ("6.8.0-1013-nvidia-64k", (6, 8)),
        ("7.2-rc1", (7, 2)),
        ("6.12.0-55.9.1.el10_0.x86_64", (6, 12)),
        ("5.14.0-570.12.1.el9_6.aarch64+64k", (1 << 16,)),
        ("mine", (1 << 16,)),
    ],
)
def test_a_release_is_read_as_far_as_its_number_means_something(release: str, numbers: tuple[int, ...]) -> None:
    assert version(release) == numbers


def test_the_number_of_a_kernel_with_backports_says_nothing(privileged: None, tmp_path: Path) -> None:
    told = explain(["multi: no"], "5.14.0-570.12.1.el9_6.x86_64", tmp_path, "x86_64")
    assert told == "eBPF does not work on this kernel (5.14.0-570.12.1.el9_6.x86_64): multi: no"


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv (util-linux) is not installed")
def test_before_uprobe_multi_more_is_needed(privileged: None) -> None:
    wrapper = ["setpriv", "--bounding-set=-all,+bpf,+perfmon", "--inh-caps=-all,+bpf,+perfmon"]
    code = "from otel_zernel_receivers.ebpf.kernel.unavailable import explain; print(explain(['perf: no'], '5.18.0'))"
    told = "perf links, the only way to attach before Linux 6.6, need the capability CAP_SYS_ADMIN; this process "
    assert run_in(wrapper, code).stdout.startswith(f"{told}lacks it (Linux 5.18.0): run it as root")


def test_a_kernel_without_type_information_is_told(privileged: None, tmp_path: Path) -> None:
    told = explain(["session: no"], "6.18.0", tmp_path / "vmlinux")
    assert told.startswith(f"eBPF needs the kernel's type information ({tmp_path / 'vmlinux'}), which is not there")


@pytest.mark.parametrize(
    "verifier", ["unknown func bpf_probe_read#4", "program of this type cannot use helper bpf_probe_read#4"]
)
def test_a_kernel_that_is_locked_down_too_far_is_told_by_the_verifier_s_log(
    privileged: None, tmp_path: Path, verifier: str
) -> None:
    """The words of Linux 6.1 and of 6.12; containers do not see /sys/kernel/security, where the mode stands."""
    reasons = ["session (session): loading: no", f"multi (classic): loading\n1284: (85) call 4\n{verifier}\n-- END --"]
    told = explain(reasons, "6.12.0", tmp_path)
    assert told.startswith("the kernel is locked down in the mode confidentiality")
    assert "boot it with lockdown=integrity" in told


def test_other_troubles_are_a_line_however_long_the_verifier_s_log(privileged: None, tmp_path: Path) -> None:
    reasons = ["session: loading: Invalid argument\n0: R1=ctx()\n1: exit", "session: loading: Invalid argument\nmore"]
    told = explain(reasons, "6.18.0", tmp_path)
    assert told == "eBPF does not work on this kernel (6.18.0): session: loading: Invalid argument"


WITHOUT_LIBBPF = """
import asyncio, logging, subprocess, sys
from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver

async def main():
    context = make_context(clock=SystemClock())
    config = EbpfConfig.model_validate({"rescan_interval": "50ms", "interval": "10ms"})
    running = asyncio.create_task(EbpfReceiver(config, context).run(Downstream()))
    await until(lambda: context.health.problems)
    print(context.health.problems["receivers::test"])
    subprocess.run(["umount", sys.argv[1]], check=True)
    await until(lambda: not context.health.problems)
    print("works")
    running.cancel()
    await asyncio.wait([running])

asyncio.run(main())
"""


def test_a_libbpf_that_is_installed_later_is_taken(loadable: None) -> None:
    libbpf = library_path("libbpf.so.1")
    hidden = ["unshare", "--mount", "sh", "-c", f'mount --bind /dev/null {libbpf} && exec "$@" {libbpf}', "-"]
    if subprocess.run([*hidden, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespace can be made here")
    result = run_in(hidden, WITHOUT_LIBBPF)
    assert result.returncode == 0, result.stderr
    first, last = result.stdout.splitlines()
    assert "apt-get install libbpf1" in first
    assert last == "works"


def library_path(name: str) -> Path:
    """Where the dynamic linker finds a library."""
    ctypes.CDLL(name)
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(Path(line.split()[-1]) for line in lines if f"/{name}" in line)
