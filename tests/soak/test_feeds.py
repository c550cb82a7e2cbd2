"""A gateway with a thousand workers and two hundred readers of its feeds: neither memory nor CPU time grows.

Workers and readers come and go meanwhile: a hundred workers die and come back each minute, and a reader each second.
"""

import asyncio
import contextlib
import csv
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from docs.catalogue import ROOT
from tests.collectors import collector
from tests.examples.seed_data import recorded
from tests.free_ports import free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(86_400)]

SECONDS = float(os.environ.get("SOAK_MINUTES", "10")) * 60
WORKERS, COMING, READERS, FLEET_READERS = 1000, 100, 200, 10
INTERVAL, LIFE = 5, 60
"""Seconds between two heartbeats of a worker, and those in which the hundred workers live."""
RESULT = ROOT / "docs/development/soak/feeds.csv"


class Ports:
    """Of the collector."""

    def __init__(self) -> None:
        self.workers, self.api, self.feed = free_port(), free_port(), free_port()


class Readers:
    """Readers of a WebSocket. Each second, the oldest one leaves."""

    def __init__(self, url: str, count: int) -> None:
        self.messages = 0
        self._url = url
        self._count = count

    async def run(self) -> None:
        running: list[asyncio.Task[None]] = []
        try:
            while True:
                while len(running) < self._count:
                    running.append(asyncio.create_task(self._read()))
                await asyncio.sleep(1)
                running.pop(0).cancel()
        finally:
            for task in running:
                task.cancel()

    async def _read(self) -> None:
        while True:
            with contextlib.suppress(OSError, WebSocketException):
                async with connect(self._url, compression=None, max_size=None) as client:
                    async for _ in client:
                        self.messages += 1
            await asyncio.sleep(1)


@asynccontextmanager
async def workers(port: int, count: int, prefix: str) -> AsyncIterator[None]:
    """Workers with clients of gRPC, which end by kill -9."""
    words = [str(port), str(count), str(INTERVAL), str(SECONDS * 2), "stream", prefix]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.fleet_parts.workers", *words, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout
        assert await process.stdout.readline() == b"connected\n"
        yield
    finally:
        process.kill()
        await process.wait()


async def come_and_go(port: int) -> None:
    for _ in itertools.count():
        async with workers(port, COMING, "guest"):
            await asyncio.sleep(LIFE)


def settings(ports: Ports, data: Path) -> dict[str, Any]:
    return {
        "receivers": {
            "heartbeat": {"endpoint": f"localhost:{ports.workers}", "api": "api", "inactive_after": "20s"},
            "otlp_json_file": {"include": [str(data)], "loop": True, "speed": 1, "timestamps": "now"},
        },
        "exporters": {
            "prometheus": {"endpoint": "localhost:0"},
            "websocket": {"endpoint": f"localhost:{ports.feed}", "max_clients": 1000},
        },
        "extensions": {"api": {"endpoint": f"localhost:{ports.api}"}},
        "service": {
            "extensions": ["api"],
            "pipelines": {
                "metrics/fleet": {"receivers": ["heartbeat"], "exporters": ["prometheus"]},
                "metrics/feed": {"receivers": ["otlp_json_file"], "exporters": ["websocket"]},
            },
        },
    }


async def test_a_thousand_workers_and_two_hundred_readers_take_no_more_with_time(tmp_path: Path) -> None:
    ports = Ports()
    (tmp_path / "data.jsonl").write_text(recorded())
    feed = Readers(f"ws://localhost:{ports.feed}", READERS)
    fleet = Readers(f"ws://localhost:{ports.api}/ws", FLEET_READERS)
    run = settings(ports, tmp_path / "data.jsonl")
    async with (
        collector(tmp_path / "collector", run, ports.workers, ports.api, ports.feed) as running,
        workers(ports.workers, WORKERS, "worker"),
    ):
        tasks = [asyncio.create_task(work) for work in (feed.run(), fleet.run(), come_and_go(ports.workers))]
        rows = await sampled(running.process)
        async with httpx.AsyncClient(timeout=60) as client:
            known = (await client.get(f"http://localhost:{ports.api}/telemetry")).json()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    with RESULT.open("w", newline="") as file:
        csv.writer(file).writerows([("seconds", "rss_mib", "cpu_seconds"), *rows])
    active = [id_ for id_, one in known.items() if one["is_active"] and id_.startswith("worker")]
    half = len(rows) // 2
    first, second = (max(row[1] for row in part) for part in (rows[:half], rows[half:]))
    print(f"\n{SECONDS:.0f} s, {feed.messages:,} messages of the feed, {fleet.messages:,} of the fleet")
    print(f"{first:.0f} MiB at most in the first half, {second:.0f} MiB in the second")
    for part in (rows[:half], rows[half:]):
        print(f"{60 * (part[-1][2] - part[0][2]) / (part[-1][0] - part[0][0]):.1f} CPU seconds a minute")
    assert len(active) == WORKERS
    assert feed.messages > READERS * SECONDS / 4
    assert second < first * 1.1


async def sampled(process: psutil.Process) -> list[tuple[float, float, float]]:
    """Seconds since the start, resident MiB, and CPU seconds since the start of the collector."""
    begun, rows = time.monotonic(), list[tuple[float, float, float]]()
    while (at := time.monotonic() - begun) < SECONDS:
        times = process.cpu_times()
        rows.append((round(at, 1), round(process.memory_info().rss / 2**20, 1), round(times.user + times.system, 2)))
        await asyncio.sleep(10)
    return rows
