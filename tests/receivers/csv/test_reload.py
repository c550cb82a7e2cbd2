"""SIGHUP to a real collector: no row of a followed file is read twice, with or without a storage."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_zernel.testing import until
from tests.interop.test_collector import collector

LAYOUT = {"timestamp": "t", "metric": "m", "value": "v"}
RELOADS = 8
LAST = 99_999
"""The value of the last row."""


@pytest.mark.parametrize("storage", [{"storage": "file_storage"}, {}], ids=["stored", "in memory"])
async def test_reloads_repeat_no_row(tmp_path: Path, storage: dict[str, str]) -> None:
    path, out = tmp_path / "a.csv", tmp_path / "out.json"
    path.write_text("t,m,v\n" + rows(0, 1000))
    settings: dict[str, Any] = {
        "receivers": {"csv": {"files": [str(path)], "layout": LAYOUT, "follow": True, **storage}},
        "exporters": {"file": {"path": str(out), "append": True}},
        "extensions": {"file_storage": {"directory": str(tmp_path / "storage"), "create_directory": True}},
        "service": {
            "extensions": ["file_storage"],
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"metrics": {"receivers": ["csv"], "exporters": ["file"]}},
        },
    }
    async with collector(tmp_path, settings) as process:
        for number in range(RELOADS):
            end = 1000 + number
            await until(lambda end=end: len(values(out)) >= end, within=60)  # type: ignore[misc]
            settings["receivers"]["csv"]["batch_size"] = end  # a changed receiver is restarted
            (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
            process.send_signal(signal.SIGHUP)
            await until(lambda number=number: reloads(tmp_path) > number, within=60)  # type: ignore[misc]
            with path.open("a") as file:
                file.write(rows(end, end + 1))
        await until(lambda: len(values(out)) >= 1000 + RELOADS, within=60)
        with path.open("a") as file:  # a row too many comes before this last one
            file.write(rows(LAST, LAST + 1))
        await until(lambda: LAST in values(out), within=60)
    assert values(out) == [*range(1000 + RELOADS), LAST]


def rows(first: int, end: int) -> str:
    return "".join(f"1752871354,x,{value}\n" for value in range(first, end))


def values(out: Path) -> list[int]:
    """The values of all points in the file, without an unfinished last line."""
    *lines, _ = out.read_bytes().split(b"\n") if out.exists() else [b""]
    documents = map(json.loads, lines)
    return [
        int(point["asDouble"])
        for document in documents
        for resource in document["resourceMetrics"]
        for scope in resource["scopeMetrics"]
        for metric in scope["metrics"]
        for point in metric["gauge"]["dataPoints"]
    ]


def reloads(folder: Path) -> int:
    return (folder / "collector.log").read_text().lower().count("reload")
