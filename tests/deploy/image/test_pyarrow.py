"""The image with pyarrow: the receiver `csv` parses a large file by pyarrow, and every row comes out."""

import csv
import json
import signal
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from subprocess import Popen

import psutil
import pytest

from docs.catalogue import ROOT
from tests.deploy.conftest import Build, unpacked
from tests.deploy.image.containers import ENTRYPOINT, Container, output, running

RECORDING = ROOT / "examples" / "training_node.csv"
"""1.8 MB in the layout of DCGM. The receiver parses blocks of more than 64 KiB by pyarrow."""
COPY = Path("/data/training_node.csv")
CONFIG = f"""
receivers: {{csv: {{files: [{COPY}]}}}}
exporters: {{file: {{path: /out/points.json}}}}
service: {{telemetry: {{metrics: {{level: none}}}}, pipelines: {{metrics: {{receivers: [csv], exporters: [file]}}}}}}
"""
PARSE = f"""
import threading
from otel_zernel_receivers.csv.layouts.dcgm import DcgmLayout
from otel_zernel_receivers.csv.conversion import parse_block
from otel_zernel_receivers.csv.parsing.rows import Dialect
from otel_zernel_receivers.csv.reader import CsvFileReader

for block in CsvFileReader([DcgmLayout()], True, ",", 10_000, threading.Event()).read("{COPY}"):
    for part in block.parts:
        rows = parse_block(part.lines, part.header.plan, Dialect())
        print(None if rows is None else len(rows))
"""
UNCHANGED = ("zernel.cuda.launch.latency", "zernel.distributed.sync.wait")
"""Metrics of the recording whose names and values the layout leaves as they are: 2,816 of 3,968 rows."""
Point = tuple[str, int, float]
"""The metric's name, the Unix time in ms, and the value."""


@pytest.fixture(scope="module")
def root_with_pyarrow(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file system of the image with pyarrow."""
    return unpacked(build("--extra", "csv"), tmp_path_factory.mktemp("bundle"))


def rows() -> list[dict[str, str]]:
    with RECORDING.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def milliseconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def received(file: Path) -> list[Point]:
    """The points that the exporter has written. An unfinished last line is left out."""
    batches = [json.loads(line) for line in file.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]
    metrics = [
        metric
        for batch in batches
        for resource in batch["resourceMetrics"]
        for scope in resource["scopeMetrics"]
        for metric in scope["metrics"]
    ]
    return [
        (metric["name"], int(point["timeUnixNano"]) // 10**6, point["asDouble"])
        for metric in metrics
        for point in metric.get("gauge", metric.get("sum"))["dataPoints"]
    ]


def until_received(process: "Popen[str]", file: Path, count: int) -> list[Point]:
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if file.exists() and len(points := received(file)) >= count:
            return points
        time.sleep(0.1)
    process.kill()
    pytest.fail(f"fewer than {count} points; log: {process.stdout.read() if process.stdout else ''}")


def libraries(process: "Popen[str]") -> set[str]:
    """The names of the files that the container's processes have mapped."""
    inside = psutil.Process(process.pid).children(recursive=True)
    return {Path(mapped.path).name for one in inside for mapped in one.memory_maps()}


def folders(folder: Path) -> dict[Path, Path]:
    """The recording, and a folder for the output of the image's user."""
    data, out = folder / "data", folder / "out"
    data.mkdir()
    out.mkdir()
    out.chmod(0o777)
    (data / COPY.name).write_bytes(RECORDING.read_bytes())
    return {COPY.parent: data, Path("/out"): out}


@pytest.mark.soak
def test_every_row_of_a_large_file_comes_out_by_pyarrow(root_with_pyarrow: Path, tmp_path: Path) -> None:
    mounts, expected = folders(tmp_path), rows()
    container = Container(["--config=env:OTEL_CONFIG"], env={"OTEL_CONFIG": CONFIG}, mounts=mounts)
    with running(container, root_with_pyarrow, tmp_path / "bundle") as process:
        points = until_received(process, tmp_path / "out" / "points.json", len(expected))
        mapped = libraries(process)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 0, text
    assert any(name.startswith("libarrow.so") for name in mapped)
    assert len(points) == len(expected)
    assert Counter(point for point in points if point[0] in UNCHANGED) == Counter(
        (row["metric_name"], milliseconds(row["timestamp"]), float(row["value"]))
        for row in expected
        if row["metric_name"] in UNCHANGED
    )


@pytest.mark.soak
def test_pyarrow_parses_the_block_without_help(root_with_pyarrow: Path, tmp_path: Path) -> None:
    """A block that pyarrow cannot parse is left to the slower parser, whose rows are the same."""
    container = Container([PARSE], entrypoint=(*ENTRYPOINT[:-1], "/usr/bin/python3.11", "-c"), mounts=folders(tmp_path))
    status, text = output(container, root_with_pyarrow, tmp_path / "bundle")
    assert (status, text) == (0, f"{len(rows())}\n")
