"""`otel-zernel doctor` reports what works and what is missing, on any machine."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from otel_zernel.component import Finding
from otel_zernel_receivers.ebpf import doctor
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.doctor import examine
from otel_zernel_receivers.ebpf.kernel import libbpf_calls
from otel_zernel_receivers.ebpf.kernel.capabilities import Capability, held
from otel_zernel_receivers.ebpf.kernel.unavailable import Unavailable
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, Verify, load
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver
from otel_zernel_receivers.ebpf.tables.tables import Limits
from tests.receivers.ebpf.probes.test_marks import program_with
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.standin.fixture import BuildStandin

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="eBPF is a part of Linux")


def about(findings: Iterable[Finding], topic: str) -> Finding:
    return next(finding for finding in findings if finding.topic == topic)


def test_every_finding_is_ok_where_ebpf_works(loadable: None) -> None:
    findings = list(EbpfReceiver.examine())
    assert about(findings, "kernel").text.startswith(f"Linux {os.uname().release}")
    assert about(findings, "libbpf").text.startswith("v1.")
    assert about(findings, "by session").text.startswith("works; a probe adds ")
    assert not [finding for finding in findings if finding.ok is False]


only_x86_64 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="every function is probed there, whatever the cost"
)


@only_x86_64
def test_the_libraries_of_running_programs_are_listed(loadable: None, build_standin: BuildStandin) -> None:
    cheap, dear = build_standin("push"), build_standin("stepped")
    with cheap.start() as program, dear.start() as stepped:
        for one in (program, stepped):
            one.do("load libcudart.so.12")
            one.do("cudaLaunchKernel")  # the runtime loads the driver
        by_path = {
            library: finding
            for finding in examine(EbpfConfig())
            for library in (cheap.cudart, cheap.cuda, dear.cudart)
            if f"{library}, used by" in finding.text
        }
        assert f"used by program {program.pid}" in by_path[cheap.cudart].text
        assert f"used by program {stepped.pid}" in by_path[dear.cudart].text
    assert by_path[cheap.cuda].topic == "libcuda.so.1"
    assert by_path[cheap.cudart].ok
    assert "ns a call" in by_path[cheap.cudart].text
    assert "single-stepped" not in by_path[cheap.cudart].text
    assert by_path[dear.cudart].ok is None
    assert "would be single-stepped" in by_path[dear.cudart].text
    assert "cudaLaunchKernel" in by_path[dear.cudart].text


@only_x86_64
def test_only_processes_that_the_configuration_selects_are_listed(loadable: None, build_standin: BuildStandin) -> None:
    def texts(**processes: object) -> str:
        config = EbpfConfig.model_validate({"processes": processes, "single_stepped": True})
        return "\n".join(finding.text for finding in examine(config))

    dear = build_standin("stepped")
    with dear.start(environment={"DOCTOR_JOB": "mine"}, loads=["libcudart.so.12"]) as program:
        mine = texts(environment={"DOCTOR_JOB": "mi*"})
        others = texts(environment={"DOCTOR_JOB": "yours"})
    assert f"{dear.cudart}, used by program {program.pid}" in mine
    assert "of them are single-stepped at 10 us a call (" in mine
    assert "are not probed" not in mine
    assert "no process that `processes` selects uses CUDA, NCCL or PyTorch" in others
    assert "used by" not in others


def test_a_path_that_is_not_utf_8_can_be_printed(loadable: None, standin: Standin, tmp_path: Path) -> None:
    library = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff/libcudart.so.12"))
    library.parent.mkdir()
    shutil.copy(standin.cudart, library)
    with program_with(library):
        texts = [finding.text for finding in examine(EbpfConfig()) if f"{tmp_path}/" in finding.text]
    assert len(texts) == 1
    assert f"{tmp_path}/\ufffd/libcudart.so.12, used by".encode() in texts[0].encode()


def test_the_limit_of_sampling_is_reported_with_the_calls_that_are_never_sampled(loadable: None) -> None:
    limit = about(examine(EbpfConfig(max_overhead=0.05)), "max_overhead").text
    assert limit.startswith("above 5.0% of a CPU, or ")
    assert "never sampled: allocations and frees" in limit
    assert "no limit, so nothing is sampled" in about(examine(EbpfConfig(max_overhead=0)), "max_overhead").text


def test_without_type_information_the_kernel_option_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "BTF", tmp_path / "vmlinux")
    btf = about(examine(EbpfConfig()), "BTF")
    assert btf.ok is False
    assert "CONFIG_DEBUG_INFO_BTF" in btf.text


def test_without_libbpf_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed() -> None:
        raise OSError("libbpf.so.1: cannot open shared object file")

    monkeypatch.setattr(libbpf_calls, "libbpf", not_installed)
    findings = list(examine(EbpfConfig()))
    assert about(findings, "libbpf") == Finding("libbpf", "not found", ok=False)
    assert "apt-get install libbpf1" in about(findings, "attaching").text


def test_a_refusal_is_one_sentence_and_has_the_end_of_the_verifier_s_log_as_details(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = "\n".join(
        (*(f"{line}: (b7) r0 = 0" for line in range(500)), "R2 type=mem expected=fp", "failed to load: -13")
    )

    def refuse(limits: Limits, modes: tuple[Mode, ...], verify: Verify) -> LoadedProbes:
        raise Unavailable("Linux 5.10 is too old", [f"{modes[0]} (classic): loading the BPF programs: EACCES\n{log}"])

    monkeypatch.setattr(doctor, "load", refuse)
    findings = [finding for finding in examine(EbpfConfig()) if finding.topic == "attaching"]
    assert [finding.text for finding in findings] == ["Linux 5.10 is too old"]
    details = findings[0].details
    assert [line for line in details if "loading" in line] == [
        f"{mode} (classic): loading the BPF programs: EACCES" for mode in Mode
    ]
    assert "R2 type=mem expected=fp" in details
    assert "0: (b7) r0 = 0" not in details


def test_a_mode_that_does_not_work_has_its_log_though_another_mode_works(
    loadable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_multi(limits: Limits, modes: tuple[Mode, ...], verify: Verify) -> LoadedProbes:
        if modes != (Mode.MULTI,):
            raise Unavailable("no", ["no\nEINVAL of the kernel"])
        return load(limits, modes, verify)

    monkeypatch.setattr(doctor, "load", only_multi)
    findings = list(examine(EbpfConfig()))
    assert about(findings, "by session") == Finding("by session", "no", details=("no", "EINVAL of the kernel"))
    assert about(findings, "by multi").ok


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv (util-linux) is not installed")
def test_without_privileges_doctor_prints_findings_and_exits_with_1() -> None:
    if os.getuid():
        pytest.skip("needs root, to have capabilities that can be taken away")
    code = "import sys; from otel_zernel.cli import main; sys.exit(main(['doctor']))"
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.returncode == 1
    assert "!!  CAP_BPF" in result.stdout
    assert "    CAP_SYS_PTRACE          not held; run as root" in result.stdout
    assert "this process lacks CAP_BPF and CAP_PERFMON" in result.stdout


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        ("0000000000000000", set()),
        ("0000008000000000", {"CAP_BPF"}),
        ("0000000000080000", {"CAP_SYS_PTRACE"}),
        ("0000000000200000", {"CAP_SYS_ADMIN", "CAP_BPF", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE"}),
        ("000001ffffffffff", set(Capability.__members__)),
    ],
)
def test_capabilities_are_read_from_the_effective_mask(mask: str, names: set[str]) -> None:
    status = f"Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t{mask}\nCapBnd:\t000001ffffffffff\n"
    assert {capability.name for capability in held(status)} == names
