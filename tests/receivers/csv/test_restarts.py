"""Restarts, kills and reloads of a real collector: with a storage, each row arrives exactly once."""

import gzip
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_zernel.testing import until
from tests.collectors import Collector, collector
from tests.receivers.csv.running import HEADER, LAYOUT, append, rows
from tests.reliability.backend import UnreliableBackend

BATCH = 100
STORED = {"storage": "file_storage"}


def settings(folder: Path, **options: Any) -> dict[str, Any]:
    """A collector from `*.csv` of the folder into a file to which it appends."""
    receiver = {"files": [str(folder / "*.csv")], "layout": LAYOUT, "batch_size": BATCH, **options}
    return {
        "receivers": {"csv": receiver},
        "exporters": {"file": {"path": str(folder / "out.json"), "append": True}},
        "extensions": {"file_storage": {"directory": str(folder / "storage"), "create_directory": True}},
        "service": {
            "extensions": ["file_storage"],
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"metrics": {"receivers": ["csv"], "exporters": ["file"]}},
        },
    }


async def run_until(folder: Path, count: int, **options: Any) -> list[int]:
    """Runs a collector until `count` rows are in the file, ends it by SIGTERM, and returns all values in the file."""
    async with collector(folder, settings(folder, **options)):
        await until(lambda: len(values(folder / "out.json")) >= count, within=60)
    return values(folder / "out.json")


async def run_to_end(folder: Path, **options: Any) -> list[int]:
    """Runs a collector until it has read all files, and returns all values in the file."""
    async with collector(folder, settings(folder, **options), options=["--exit-when-done"]) as running:
        assert await running.ended() == 0
    return values(folder / "out.json")


async def test_a_stop_in_the_middle_of_a_file_continues_there(tmp_path: Path) -> None:
    """In a plain file, and in a compressed one."""
    (tmp_path / "a.csv").write_text(HEADER + rows(3000))
    (tmp_path / "b.csv").write_bytes(gzip.compress((HEADER + rows(3000, 5000)).encode()))
    await run_until(tmp_path, 500, interval="20ms", **STORED)
    assert len(values(tmp_path / "out.json")) < 3000
    await run_until(tmp_path, 3500, interval="20ms", **STORED)
    assert await run_to_end(tmp_path, **STORED) == list(range(5000))


@pytest.mark.parametrize(
    ("follow", "storage"),
    [(True, {}), (True, STORED), (False, STORED)],
    ids=["follow", "follow-stored", "once-stored"],
)
async def test_reloads_with_changed_and_unchanged_configuration_repeat_no_row(
    tmp_path: Path, follow: bool, storage: dict[str, str]
) -> None:
    path, out, total = tmp_path / "a.csv", tmp_path / "out.json", 4000
    path.write_text(HEADER + rows(total))
    wanted = settings(tmp_path, follow=follow, interval="10ms", **storage)
    async with collector(tmp_path, wanted, options=[] if follow else ["--exit-when-done"]) as running:
        for number in range(4):
            await until(lambda number=number: len(values(out)) >= 300 * number + 100, within=60)  # type: ignore[misc]
            if number % 2:
                wanted["receivers"]["csv"]["batch_size"] = BATCH + number  # a changed receiver is restarted
                (tmp_path / "config.yaml").write_text(yaml.safe_dump(wanted))
            running.process.send_signal(signal.SIGHUP)
            await until(lambda number=number: reloads(running) > number, within=60)  # type: ignore[misc]
            if follow:
                append(path, rows(total, total + 1))
                total += 1
        await until(lambda: len(values(out)) >= total, within=60)
        if follow:  # a row too many comes before this last one
            append(path, rows(LAST, LAST + 1))
            await until(lambda: LAST in values(out), within=60)
        else:
            assert await running.ended() == 0
    assert values(out) == [*range(total), *([LAST] if follow else [])]


async def test_files_rotated_or_truncated_between_two_runs_arrive_once(tmp_path: Path) -> None:
    rotated, truncated = tmp_path / "a.csv", tmp_path / "b.csv"
    rotated.write_text(HEADER + rows(0, 300))
    truncated.write_text(HEADER + rows(1000, 1300))
    await run_until(tmp_path, 600, follow=True, **STORED)
    append(rotated, rows(300, 320))
    rotated.rename(tmp_path / "a.1.csv")
    rotated.write_text(HEADER + rows(320, 330))
    truncated.write_text(HEADER + rows(1300, 1310))
    await run_until(tmp_path, 640, follow=True, **STORED)
    assert sorted(await run_to_end(tmp_path, **STORED)) == [*range(330), *range(1000, 1310)]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kills", "total"), [(2, 6_000), pytest.param(100, 400_000, marks=pytest.mark.soak)])
async def test_kill_9_loses_no_row_and_repeats_at_most_one_batch_of_the_file_and_those_in_delivery(
    tmp_path: Path, kills: int, total: int
) -> None:
    """The queue is stored too. It repeats at most the requests in delivery, one for each consumer."""
    consumers = 2
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text(HEADER + rows(number, total, 2))
    with UnreliableBackend(1, refuses=0, resets=0) as backend:
        arrived = backend.delivered
        wanted = settings(tmp_path, follow=True, **STORED)
        queue = {"storage": "file_storage", "num_consumers": consumers}
        wanted["exporters"] = {
            "otlp_http": {"endpoint": backend.endpoint, "compression": "none", "sending_queue": queue}
        }
        wanted["service"]["pipelines"]["metrics"]["exporters"] = ["otlp_http"]
        for number in range(kills):
            async with collector(tmp_path, wanted) as running:
                await until(lambda number=number: len(arrived) >= (number + 1) * total // (2 * kills + 2), within=60)  # type: ignore[misc]
                running.kill()
        async with collector(tmp_path, wanted):
            await until(lambda: len(arrived) == total, within=60)
    sys.stdout.write(f"{total} rows, {kills} kills, {arrived.total() - total} repeated\n")
    assert arrived.keys() == set(range(total))
    assert arrived.total() - total <= kills * BATCH * (1 + consumers)


LAST = 99_999
"""The value of the last row."""


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


def reloads(running: Collector) -> int:
    return running.log.lower().count("reload")
