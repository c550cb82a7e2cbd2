"""All points of whole machines, compared with golden files.

`UPDATE_GOLDEN=1 pytest tests/receivers/nvml` writes the files.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_zernel.batch import Batch
from otel_zernel_receivers.nvml.points.metrics import METRICS
from otel_zernel_receivers.nvml.readings.board import BOARD
from otel_zernel_receivers.nvml.readings.fields import FIELDS
from otel_zernel_receivers.nvml.readings.link_fields import C2C_FIELDS, NVLINK_FIELDS
from tests.receivers.nvml.driver import Driver, build
from tests.receivers.nvml.reading import lines
from tests.receivers.nvml.running import Host

GOLDEN = Path(__file__).parent / "golden"
ALL = {name: {"enabled": True} for name in METRICS}


@pytest.mark.parametrize(
    "scenario", ["h200", "h100x8", "b200", "a100-mig", "v100", "geforce", "none", "h100-580.65", "nvlink36"]
)
@pytest.mark.parametrize("metrics", ["default", "all"])
def test_the_points_of_a_machine_match_its_golden_file(
    scenario: str, metrics: str, driver: Callable[[str], Driver]
) -> None:
    driver(scenario)
    host = Host({"metrics": ALL if metrics == "all" else {}})
    with host.gpus() as gpus:
        text = "\n".join(lines(Batch.join([gpu.scrape() for gpu in gpus])))
    golden = GOLDEN / f"{scenario}-{metrics}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text + "\n")
    assert text + "\n" == golden.read_text()
    assert host.failed == []


@pytest.mark.parametrize(
    ("scenario", "changes"),
    [
        ("nvlink36", ["Field 74 = 5560000000"]),  # means by GPM are since the first scrape
        ("geforce", ["Field 94 = 4u", "ComputeRunningProcesses = !3"]),  # the counter of replays wraps around
    ],
)
def test_the_points_of_a_second_scrape_match_its_golden_file(
    scenario: str, changes: list[str], driver: Callable[[str], Driver]
) -> None:
    controls, host = driver(scenario), Host()
    with host.gpus() as gpus:
        gpus[0].scrape()
        controls.apply("gpu 0", *changes)
        host.clock.advance(10)
        text = "\n".join(lines(gpus[0].scrape()))
    golden = GOLDEN / f"{scenario}-second.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text + "\n")
    assert text + "\n" == golden.read_text()


NEWER = (
    *("JpgUtilization", "OfaUtilization", "MemoryInfo_v2", "TemperatureV", "MarginTemperature", "RepairStatus"),
    *(
        "CurrentClocksEventReasons",
        "SramEccErrorStatus",
        "RepairStatus",
        "GpuFabricInfoV",
        "GraphicsRunningProcesses_v3",
    ),
)
"""Functions that the driver of `geforce` is too old for."""


def test_a_function_missing_in_the_library_counts_as_unsupported_by_the_board(tmp_path: Path) -> None:
    build(tmp_path, without=[f"nvmlDeviceGet{name}" for name in NEWER])
    code = "from tests.receivers.nvml import test_golden; print(test_golden.geforce())"
    environ = {
        **os.environ,
        "LD_LIBRARY_PATH": str(tmp_path),
        "NVML_STANDIN": str(GOLDEN.parent / "scenarios" / "geforce.txt"),
    }
    ran = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    expected = (GOLDEN / "geforce-all.txt").read_text().splitlines()
    assert ran.stdout.splitlines() == [line for line in expected if "query.duration" not in line]


def geforce() -> str:
    """The points of the machine without query durations: a missing function is tried once more."""
    with Host({"metrics": ALL}).gpus() as gpus:
        return "\n".join(line for line in lines(gpus[0].scrape()) if "query.duration" not in line)


def test_every_series_of_a_board_is_in_a_golden_file() -> None:
    text = "".join(path.read_text() for path in GOLDEN.glob("*-all.txt"))
    series = [field.series for field in FIELDS] + [field.series for field in (*NVLINK_FIELDS, *C2C_FIELDS)]
    series += [one for query in BOARD for one in query.series]
    known = {(one.metric, " ".join(f"{name}={value}" for name, value in one.attributes)) for one in series}
    missing = {(metric, attributes) for metric, attributes in known if not re.search(_line(metric, attributes), text)}
    assert not missing


def _line(metric: str, attributes: str) -> str:
    return rf"\n  {re.escape(metric)} \[[^]]*\] \w+ {{{re.escape(attributes)}}} "
