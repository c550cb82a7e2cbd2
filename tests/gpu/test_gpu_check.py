"""The comparison behind `make gpu-check`, with the answers of a real H200."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_zernel.batch import Batch
from otel_zernel_receivers.nvml.points.metrics import METRICS
from tests.gpu.check import table
from tests.gpu.nvidia_smi import LINES, compare
from tests.receivers.nvml.driver import build, build_nvidia_smi, driver
from tests.receivers.nvml.running import Host

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "tests" / "receivers" / "nvml" / "scenarios"
REAL = ROOT.parent / "shared/data/h200/nvidia-smi-q.xml"


@pytest.fixture(scope="module")
def xml() -> str:
    if not REAL.exists():
        pytest.skip("needs the recorded answers of a real H200, which are not in the repository")
    return REAL.read_text()


def scrape(*lines: str) -> Batch:
    """The receiver's scrape of an H200, after applying lines to the scenario."""
    driver().boot("h200").apply("gpu 0", *lines)
    with Host({"metrics": {name: {"enabled": True} for name in METRICS}}).gpus() as gpus:
        return gpus[0].scrape()


def test_the_receiver_agrees_with_nvidia_smi_on_a_real_h200(xml: str) -> None:
    found = list(compare(xml, [scrape()]))
    assert [one for one in found if not one.agree] == []
    assert len(found) > 80


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ClockInfo 1 = 1200", "zernel.gpu.clock {sm}"),
        ("PowerManagementLimit = 650000", "zernel.gpu.power.limit"),
        ("CurrentClocksEventReasons = 0x4", "zernel.gpu.throttle.active {sw_power_cap}"),
        ("TemperatureV 0 = 50", "hw.temperature {gpu}"),
        ("PersistenceMode = 0", "zernel.gpu.persistence.enabled"),
        ("PersistenceMode = !3", "zernel.gpu.persistence.enabled"),
        ("FanSpeed = 30", "hw.fan.speed_ratio"),
        ("Serial = 1", "hw.serial_number"),
    ],
)
def test_a_difference_is_found(xml: str, line: str, name: str) -> None:
    differing = [one.name for one in compare(xml, [scrape(line)]) if not one.agree]
    assert name in differing
    assert len(differing) <= 2
    assert f"{len(differing)} differ" in next(iter(table(compare(xml, [scrape(line)]))))


def test_a_changing_value_may_agree_with_either_scrape(xml: str) -> None:
    moved = scrape("ClockInfo 1 = 1200")
    assert all(one.agree for one in compare(xml, [moved, scrape()]))
    assert all(one.agree for one in compare(xml, [scrape(), moved]))


def test_every_compared_metric_exists() -> None:
    assert {line.series[0] for line in LINES} <= set(METRICS)


@pytest.mark.parametrize("check", ["check", "load_check"])
def test_without_a_gpu_it_prints_one_sentence(check: str, tmp_path: Path) -> None:
    environ, command = {**os.environ, "PATH": str(tmp_path)}, [sys.executable, "-m", f"tests.gpu.{check}"]
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0
    assert ran.stdout.startswith("Nothing to check: ")
    assert ran.stdout.count("\n") == 1


@pytest.mark.parametrize(("scenario", "gpus"), [("h200", 1), ("h100x8", 8)])
def test_receiver_and_nvidia_smi_agree_and_the_report_is_written(scenario: str, gpus: int, tmp_path: Path) -> None:
    ran, report = check_with_stand_ins(SCENARIOS / f"{scenario}.txt", tmp_path)
    first, second, *rows = report.splitlines()
    assert first.startswith("driver 5")
    assert second == f"{len(rows)} values, 0 differ"
    assert len(rows) > 80 * gpus
    assert ran.returncode == 0
    assert ran.stdout == report


def test_a_wrong_value_of_nvidia_smi_is_found(tmp_path: Path) -> None:
    build(tmp_path)
    program = build_nvidia_smi(tmp_path)
    program.rename(tmp_path / "original")
    program.write_text(f"#!/bin/sh\n{tmp_path}/original \"$@\" | sed 's/<sm_clock>1980/<sm_clock>1200/'\n")
    program.chmod(0o755)
    ran, report = run_check(SCENARIOS / "h200.txt", tmp_path)
    assert ran.returncode == 1
    assert [line for line in report.splitlines() if line.startswith("DIFFERS")] == [
        "DIFFERS GPU-515034b9 zernel.gpu.clock {sm}: 1200000000 | 1980000000",
        "DIFFERS GPU-515034b9 zernel.gpu.clock.limit {sm}: 1200000000 | 1980000000",
    ]


def check_with_stand_ins(scenario: Path, folder: Path) -> "tuple[subprocess.CompletedProcess[str], str]":
    """Runs the check on a machine of the scenario, with stand-ins for driver and nvidia-smi in `folder`."""
    build(folder)
    build_nvidia_smi(folder)
    return run_check(scenario, folder)


def run_check(scenario: Path, folder: Path) -> "tuple[subprocess.CompletedProcess[str], str]":
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    environ = {**os.environ, "PATH": path, "LD_LIBRARY_PATH": str(folder), "NVML_STANDIN": str(scenario)}
    command = [sys.executable, "-m", "tests.gpu.check", str(folder / "report.txt")]
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert not ran.stderr, ran.stderr
    return ran, (folder / "report.txt").read_text()
