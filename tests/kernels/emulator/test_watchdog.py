"""An emulated machine that stands still is booted again; one that works, fails or is slow is not."""

import os
import shutil
from pathlib import Path

import pytest

from tests.kernels.campaign import ROOT, package
from tests.kernels.catalogue import named
from tests.kernels.emulator.machine import BOOTS, BootFailed, EmulatedMachine
from tests.kernels.test_boots import need_package

LONG = 60.0
STANDS_STILL = "while :; do touch $results/beat.1; sleep 0.1; done"
"""CPU 1 runs, and CPU 0 does not."""


@pytest.fixture(autouse=True)
def _archiver() -> None:
    if not shutil.which("cpio"):
        (pytest.fail if os.environ.get("REQUIRE_PEERS") == "1" else pytest.skip)("not installed: cpio")


def machine(folder: Path, *boots: str, silence: float = 1.0) -> EmulatedMachine:
    """A machine whose emulator is a shell script: the first boot runs the first of `boots`, and so on."""
    emulator, kernel = folder / "emulator", folder / "kernel"
    cases = "\n".join(f"{number}) {script} ;;" for number, script in enumerate(boots, 1))
    emulator.write_text(
        "#!/bin/sh\n"
        "while [ $1 != -initrd ]; do shift; done\n"
        "results=${2%/*}\n"
        f"echo boot >> {folder}/boots\n"
        f"echo on the console\n"
        f"case $(wc -l < {folder}/boots) in\n{cases}\nesac\n"
    )
    emulator.chmod(0o755)
    kernel.mkdir()
    (kernel / "vmlinuz").touch()
    return EmulatedMachine("x86_64", kernel, folder, emulator, emulator=str(emulator), silence=silence)


FINISHES = "touch $results/finished"


def test_a_machine_that_stands_still_is_booted_again_without_its_files(tmp_path: Path) -> None:
    results = tmp_path / "results"
    (results / "standins").mkdir(parents=True)
    boots = (
        f"touch $results/report.xml; mkdir $results/made; {STANDS_STILL}",
        f"ls $results > $results/seen; {FINISHES}",
    )
    assert machine(tmp_path, *boots).run("true", results, LONG) == 2
    seen = set((results / "seen").read_text().split())
    assert {"run.sh", "standins", "initramfs", "console.1"} <= seen
    assert not {"report.xml", "made", "beat.1"} & seen
    assert (results / "console.1").read_text() == "on the console\n"


def test_a_machine_that_stands_still_each_time_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BootFailed, match=r"all 3 machines stood still: a CPU did not run for 1 s\non the console"):
        machine(tmp_path, *[STANDS_STILL] * (BOOTS + 1)).run("true", tmp_path / "results", LONG)
    assert len((tmp_path / "boots").read_text().split()) == BOOTS


def test_a_machine_whose_cpus_run_is_not_ended_however_long_its_script_is_silent(tmp_path: Path) -> None:
    beats = f"for _ in $(seq 30); do touch $results/beat.0 $results/beat.1; sleep 0.1; done; {FINISHES}"
    assert machine(tmp_path, beats).run("true", tmp_path / "results", LONG) == 1


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo its last words > $results/log", r"the script failed\n(.|\n)*its last words"),
        ("exit 7", "returned non-zero exit status 7"),
        ("while :; do touch $results/beat.0 $results/beat.1; sleep 0.1; done", "timed out after"),
    ],
    ids=["unfinished", "exit 7", "slow"],
)
def test_a_machine_that_fails_or_is_slow_is_not_booted_again(script: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BootFailed, match=message):
        machine(tmp_path, script, FINISHES, silence=2.0).run("true", tmp_path / "results", 3.0)
    assert (tmp_path / "boots").read_text() == "boot\n"


STARVE_CPU_0 = """
cd {project}
if [ ! -s /run/results/starved ]; then
    echo once > /run/results/starved
    echo -1 > /proc/sys/kernel/sched_rt_runtime_us
    chrt -f 99 taskset -c 0 sh -c 'while :; do :; done'
fi
nproc > /run/results/cpus
"""


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_kernel_with_a_cpu_that_does_not_run_is_booted_again(tmp_path: Path) -> None:
    kernel = named("6.1-x86_64")
    need_package(kernel)
    results = tmp_path / "results"
    results.mkdir()
    (results / "starved").touch()
    emulated = EmulatedMachine("x86_64", package(kernel), Path("/"), Path("/bin/busybox"), silence=45.0)
    assert emulated.run(STARVE_CPU_0.format(project=ROOT), results, 800) == 2
    assert (results / "cpus").read_text() == "2\n"
