"""Where eBPF does not work, the receiver reports the reason, keeps running, and tries again."""

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
ADVICE = "otel-zernel doctor --verbose prints the log of the kernel's verifier"


async def test_a_problem_is_in_health_until_it_is_solved(loadable: None, caplog: pytest.LogCaptureFixture) -> None:
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
    assert caplog.text.count("a penny") == 1, "logged once, not at every attempt"
    running.cancel()
    await asyncio.wait([running])


def run_in(wrapper: list[str], code: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python code under a wrapper command that changes the rights of the process."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/libraries:{ROOT}/receivers"}
    command = [*wrapper, sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


LOAD = """
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.tables.tables import Limits
load(Limits())
"""


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv (util-linux) is not installed")
@pytest.mark.parametrize(("held", "missing"), [("-all", "CAP_BPF and CAP_PERFMON"), ("-all,+bpf", "CAP_PERFMON")])
def test_missing_capabilities_are_named(held: str, missing: str) -> None:
    if os.getuid():
        pytest.skip("needs root, to drop capabilities")
    result = run_in(["setpriv", f"--bounding-set={held}", f"--inh-caps={held}"], LOAD)
    assert f"this process lacks {missing}: run the collector as root" in result.stderr.splitlines()[-1]


def test_capabilities_of_another_user_namespace_do_not_count() -> None:
    wrapper = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*wrapper, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespace can be made here")
    last = run_in(wrapper, LOAD).stderr.splitlines()[-1]
    assert "this process holds them in another one (as in a rootless container)" in last


@pytest.fixture
def privileged() -> None:
    if os.getuid():
        pytest.skip("needs root: without it, the missing capabilities are reported first")


@pytest.mark.parametrize(
    ("release", "machine", "enough"),
    [
        ("5.10.0-30-amd64", "x86_64", "upgrade to 5.15"),
        ("5.15.0-1072-nvidia", "aarch64", "upgrade to 6.0"),
    ],
)
def test_a_kernel_that_is_too_old_is_reported_with_newer_ones(
    privileged: None, release: str, machine: str, enough: str
) -> None:
    sentence = explain(["session: no"], release, machine=machine)
    assert sentence.startswith(f"Linux {release} is too old for the ebpf receiver on {machine}: {enough} or newer. ")
    for part in (
        "(launches, ",
        "needs CAP_SYS_ADMIN",
        "6.6 and newer do not",
        "On 6.13 and newer, probes cost least",
    ):
        assert part in sentence


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
def test_a_release_gives_its_version(release: str, numbers: tuple[int, ...]) -> None:
    assert version(release) == numbers


def test_a_kernel_with_backports_is_never_too_old(privileged: None, tmp_path: Path) -> None:
    sentence = explain(["multi: no"], "5.14.0-570.12.1.el9_6.x86_64", tmp_path, "x86_64")
    assert sentence == f"eBPF does not work on this kernel (5.14.0-570.12.1.el9_6.x86_64): multi: no; {ADVICE}"


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv (util-linux) is not installed")
def test_before_uprobe_multi_cap_sys_admin_is_needed(privileged: None) -> None:
    wrapper = ["setpriv", "--bounding-set=-all,+bpf,+perfmon", "--inh-caps=-all,+bpf,+perfmon"]
    code = "from otel_zernel_receivers.ebpf.kernel.unavailable import explain; print(explain(['perf: no'], '5.18.0'))"
    start = "attaching by perf links, the only attach mode before Linux 6.6, needs the capability CAP_SYS_ADMIN; "
    expected = f"{start}this process lacks it (Linux 5.18.0): run the collector as root"
    assert run_in(wrapper, code).stdout.startswith(expected)


def test_a_kernel_without_btf_is_reported(privileged: None, tmp_path: Path) -> None:
    sentence = explain(["session: no"], "6.18.0", tmp_path / "vmlinux")
    assert sentence.startswith(
        f"eBPF needs the kernel's type information (BTF), but {tmp_path / 'vmlinux'} does not exist"
    )


@pytest.mark.parametrize(
    "verifier", ["unknown func bpf_probe_read#4", "program of this type cannot use helper bpf_probe_read#4"]
)
def test_lockdown_is_recognized_by_the_verifier_s_log(privileged: None, tmp_path: Path, verifier: str) -> None:
    """The messages are those of Linux 6.1 and 6.12. Containers do not show /sys/kernel/security."""
    reasons = ["session (session): loading: no", f"multi (classic): loading\n1284: (85) call 4\n{verifier}\n-- END --"]
    sentence = explain(reasons, "6.12.0", tmp_path)
    assert sentence.startswith("the kernel is in lockdown mode confidentiality")
    assert "boot it with lockdown=integrity" in sentence


def test_other_errors_are_one_line_without_the_verifier_s_log(privileged: None, tmp_path: Path) -> None:
    reasons = ["session: loading: Invalid argument\n0: R1=ctx()\n1: exit", "session: loading: Invalid argument\nmore"]
    sentence = explain(reasons, "6.18.0", tmp_path)
    error = "session: loading: Invalid argument"
    assert sentence == f"eBPF does not work on this kernel (6.18.0): {error}; {ADVICE}"


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


def test_a_libbpf_that_is_installed_later_is_used(loadable: None) -> None:
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
    """The path at which the dynamic linker finds a library."""
    ctypes.CDLL(name)
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(Path(line.split()[-1]) for line in lines if f"/{name}" in line)
