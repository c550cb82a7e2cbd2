"""All points of whole machines, compared with golden files.

`UPDATE_GOLDEN=1 pytest tests/receivers/nvml` writes the files.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint, ResourceMetrics

from otel_zernel.batch import Batch, points
from otel_zernel_libraries.prometheus.labels import value_text
from otel_zernel_receivers.nvml.gpus.identity import OF_POINTS
from otel_zernel_receivers.nvml.points.metrics import METRICS
from otel_zernel_receivers.nvml.readings.board import BOARD
from otel_zernel_receivers.nvml.readings.fields import FIELDS
from otel_zernel_receivers.nvml.readings.link_fields import C2C_FIELDS, NVLINK_FIELDS
from tests.receivers.nvml.driver import build
from tests.receivers.nvml.reading import lines
from tests.receivers.nvml.running import Boot, Host

GOLDEN = Path(__file__).parent / "golden"
ALL = {name: {"enabled": True} for name in METRICS}


@pytest.mark.parametrize(
    "scenario", ["h200", "h100x8", "b200", "a100-mig", "v100", "geforce", "none", "h100-580.65", "nvlink36"]
)
@pytest.mark.parametrize("metrics", ["default", "all"])
def test_the_points_of_a_machine_match_its_golden_file(scenario: str, metrics: str, driver: Boot) -> None:
    driver(scenario)
    host = Host({"metrics": ALL if metrics == "all" else {}})
    with host.gpus() as gpus:
        compare(Batch.join([gpu.scrape() for gpu in gpus]), f"{scenario}-{metrics}")
    assert host.failed == []


def compare(batch: Batch, name: str) -> None:
    """Compares the points with a golden file."""
    text, golden = "\n".join(lines(batch)) + "\n", GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize(
    ("scenario", "changes"),
    [
        ("nvlink36", ["Field 74 = 5560000000"]),  # means by GPM are since the first scrape
        ("geforce", ["Field 94 = 4u", "ComputeRunningProcesses = !3"]),  # the counter of replays wraps around
    ],
)
def test_the_points_of_a_second_scrape_match_its_golden_file(scenario: str, changes: list[str], driver: Boot) -> None:
    controls, host = driver(scenario), Host()
    with host.gpus() as gpus:
        gpus[0].scrape()
        controls.apply("gpu 0", *changes)
        host.clock.advance(10)
        compare(gpus[0].scrape(), f"{scenario}-second")


@pytest.mark.parametrize("scenario", ["h100x8", "a100-mig"])
def test_every_point_says_which_gpu_it_is_about(scenario: str, driver: Boot) -> None:
    driver(scenario)
    with Host({"metrics": ALL}).gpus() as gpus:
        batch = Batch.join([gpu.scrape() for gpu in gpus])
        expected = [device.identity for gpu in gpus for device in (gpu.board, *gpu.instances)]
    own = {(identity.uuid, key, str(value)) for identity in expected for key, value in identity.of_points.items()}
    found = {
        (attributes["hw.id"], key, value)
        for resource in batch.metrics.resource_metrics
        for attributes in map(texts_of, all_points(resource))
        for key, value in attributes.items()
        if key in OF_POINTS
    }
    assert found == own
    assert all("service.instance.id" not in identity.resource for identity in expected)


def all_points(resource: ResourceMetrics) -> list[NumberDataPoint]:
    return [point for scope in resource.scope_metrics for metric in scope.metrics for point in points(metric)]


def texts_of(point: NumberDataPoint) -> dict[str, str]:
    return {pair.key: value_text(pair.value) for pair in point.attributes}


NEWER = [
    *("JpgUtilization", "OfaUtilization", "MemoryInfo_v2", "TemperatureV", "MarginTemperature", "RepairStatus"),
    *("CurrentClocksEventReasons", "SramEccErrorStatus", "GpuFabricInfoV", "GraphicsRunningProcesses_v3"),
]
"""Functions that the driver of `geforce` is too old for."""


def test_a_function_missing_in_the_library_counts_as_unsupported_by_the_board(tmp_path: Path) -> None:
    build(tmp_path, without=[f"nvmlDeviceGet{name}" for name in NEWER])
    code = "from tests.receivers.nvml import test_golden; print(test_golden.geforce())"
    scenario = str(GOLDEN.parent / "scenarios" / "geforce.txt")
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "NVML_STANDIN": scenario}
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
    series += [series for query in BOARD for series in query.series]
    known = {(one.metric, " ".join(f"{name}={value}" for name, value in one.attributes)) for one in series}
    missing = {(metric, attributes) for metric, attributes in known if not re.search(_line(metric, attributes), text)}
    assert not missing


def _line(metric: str, attributes: str) -> str:
    return rf"\n  {re.escape(metric)} \[[^]]*\] \w+ {{{re.escape(attributes)}}} "
