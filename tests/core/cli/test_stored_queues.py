"""`otel-zernel queue` shows and exports stored queues, and changes nothing."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import SIGNALS, Batch, Signal
from otel_zernel.cli import main
from otel_zernel.otlp.json import parse_json
from otel_zernel.registry import Registry
from otel_zernel.storage import Storage
from otel_zernel.testing import FakeClock, make_context
from tests.core.parts import batch_of, values_of

TIME_NS = 1_700_000_000_000_000_000


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Storage]:
    """The storage extension of a collector."""
    cls = Registry.installed().load("extensions", "file_storage")
    config = cls.Config.model_validate({"directory": str(directory)})
    storage = cls(config, make_context("extensions", "file_storage", clock=FakeClock(TIME_NS)))
    assert isinstance(storage, Storage)
    async with storage:
        yield storage


async def store(storage: Storage, component: str, batches: list[Batch], signal: Signal = "metrics") -> None:
    journal = await storage.journal(component)
    for batch in batches:
        await journal.append(signal, batch.bytes_of(signal), batch.count_of(signal))


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    async with running(tmp_path) as storage:
        await store(storage, "exporters::otlp", [batch_of(1.0), batch_of(2.0, 3.0)])
        await store(storage, "exporters::file/a", [batch_of(9.0)])
    return tmp_path


def state_of(directory: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.rglob("*") if path.is_file()}


def damage(directory: Path) -> None:
    path = max(directory.rglob("*.segment"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_inspect_describes_each_queue_and_changes_nothing(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = state_of(directory)
    assert main(["queue", "inspect", str(directory)]) == 0
    assert state_of(directory) == before
    shown = yaml.safe_load(capsys.readouterr().out)
    assert list(shown) == ["exporters::file/a", "exporters::otlp"]
    otlp = shown["exporters::otlp"]
    assert (otlp["batches"], otlp["metric points"], otlp["spans"], otlp["log records"]) == (2, 3, 0, 0)
    assert otlp["bytes"] == batch_of(1.0).byte_size + batch_of(2.0, 3.0).byte_size
    assert otlp["bytes on disk"] > otlp["bytes"]
    assert otlp["oldest"].startswith("2023-11-14T22:13:")  # the fake clock may have moved by some seconds
    assert otlp["damage"] == "none"


def test_inspect_reports_damage_with_status_2_every_time(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(directory)
    for _ in range(2):
        assert main(["queue", "inspect", str(directory)]) == 2
        shown = yaml.safe_load(capsys.readouterr().out)
        assert shown["exporters::file/a"]["damage"] == "none"
        assert shown["exporters::otlp"]["batches"] == 1
        assert shown["exporters::otlp"]["damage"] == [
            "lost 1 stored batch with 2 items: 00000000000000000001.segment was changed on the disk"
        ]


def test_export_writes_the_pending_batches_as_lines_of_otlp_json(
    directory: Path, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    assert main(["queue", "export", str(directory), "--component", "exporters::otlp"]) == 0
    lines = capsysbinary.readouterr().out.splitlines()
    assert [values_of([Batch(metrics=parse_json(MetricsData, line))]) for line in lines] == [[1.0], [2.0, 3.0]]
    output = tmp_path / "out.jsonl"
    assert main(["queue", "export", str(directory), "--output", str(output)]) == 0
    assert len(output.read_bytes().splitlines()) == 3
    assert capsysbinary.readouterr() == (b"", b"")


async def test_every_signal_is_counted_and_exported(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    encoded: dict[Signal, str] = {
        "metrics": "resourceMetrics",
        "traces": "resourceSpans",
        "logs": "resourceLogs",
        "profiles": "resourceProfiles",
    }
    async with running(tmp_path) as storage:
        journal = await storage.journal("exporters::otlp")
        for signal in SIGNALS:
            await journal.append(signal, b"\x0a\x00", 0)  # a message with one empty resource
    assert main(["queue", "export", str(tmp_path)]) == 0
    lines = capsysbinary.readouterr().out.splitlines()
    assert [list(json.loads(line)) for line in lines] == [[encoded[signal]] for signal in SIGNALS]


async def test_a_collector_may_use_the_directory_meanwhile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path) as storage:
        journal = await storage.journal("exporters::otlp")
        for round_ in range(20):
            record = await journal.append("metrics", batch_of(1.0).bytes_of("metrics"), 1)
            if round_ % 2:
                journal.remove(record)
            assert main(["queue", "inspect", str(tmp_path)]) == 0
        assert yaml.safe_load(capsys.readouterr().out)["exporters::otlp"]["damage"] == "none"


async def test_a_batch_that_is_no_otlp_is_left_out_with_a_sentence(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    async with running(tmp_path) as storage:
        journal = await storage.journal("exporters::otlp")
        await journal.append("metrics", b"\xff\xff", 1)
        await journal.append("metrics", batch_of(5.0).bytes_of("metrics"), 1)
    assert main(["queue", "export", str(tmp_path)]) == 2
    printed = capsysbinary.readouterr()
    assert len(printed.out.splitlines()) == 1
    assert printed.err.startswith(b"exporters::otlp: cannot export batch 1: ")


@pytest.mark.parametrize("action", ["inspect", "export"])
def test_a_wrong_directory_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str) -> None:
    missing = tmp_path / "missing"
    assert main(["queue", action, str(missing)]) == 1
    assert capsys.readouterr().err == (
        f"Error: {missing} is not a directory; name the directory of a storage extension\n"
    )
    assert main(["queue", action, str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"Error: {tmp_path} has no queue; name the directory of a storage extension\n"


def test_an_unknown_component_is_one_sentence(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "inspect", str(directory), "--component", "exporters::olpt"]) == 1
    assert 'has no queue of "exporters::olpt"; did you mean "exporters::otlp"?' in capsys.readouterr().err


@pytest.mark.parametrize("action", ["inspect", "export"])
def test_a_full_disk_is_one_sentence(directory: Path, action: str) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "otel_zernel", "queue", action, str(directory)]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: cannot write")
    assert ended.stderr.endswith(": No space left on device\n")
    assert len(ended.stderr.splitlines()) == 1


def test_an_output_file_is_never_overwritten(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("mine")
    assert main(["queue", "export", str(directory), "--output", str(output)]) == 1
    assert capsys.readouterr().err == f"Error: cannot write {output}: File exists\n"
    assert output.read_text() == "mine"
