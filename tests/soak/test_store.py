"""PostgreSQL and the collector that writes to it are killed many times: every acknowledged point is stored once."""

import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import httpx
import pytest

from otel_zernel_libraries.store.config import WritableStoreConfig
from tests.collectors import ROOT
from tests.exporters.sql.test_collector import QUEUED, command
from tests.libraries.store.given import flat, gauges, points_in, read_all
from tests.postgres import PostgresServer, postgres_server

pytestmark = pytest.mark.soak

KILLS = int(os.environ.get("SOAK_KILLS", "100"))
"""Of the server and of the collector together."""
SERIES, TIMES = 20, 5
POINTS = SERIES * TIMES
"""Of a request."""


class Collector:
    """A collector with a queue on the disk, in a process."""

    def __init__(self, folder: Path, port: int, url: str) -> None:
        self.endpoint = f"http://localhost:{port}/v1/metrics"
        self._command = command(QUEUED.format(port=port, folder=folder, url=url), folder)
        self._log = folder / "log"

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*self._command, cwd=ROOT, stderr=log)

    async def end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        await self._process.wait()


class Sender:
    """Sends requests one after the other, each until it is acknowledged."""

    def __init__(self, endpoint: str) -> None:
        self.acknowledged = 0
        self._endpoint = endpoint

    async def run(self) -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            while True:
                body = gauges(SERIES, times=TIMES, first=TIMES * self.acknowledged).bytes_of("metrics")
                headers = {"content-type": "application/x-protobuf"}
                try:
                    answer = await client.post(self._endpoint, content=body, headers=headers)
                except httpx.TransportError:
                    await asyncio.sleep(0.02)
                    continue
                self.acknowledged += answer.status_code == 200


@pytest.mark.timeout(3600)
async def test_after_a_hundred_kills_every_acknowledged_point_is_stored_once(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    with postgres_server() as server:
        settings = WritableStoreConfig.model_validate({"url": server.url(), "connect_timeout": "60s"})
        collector = Collector(tmp_path, unused_tcp_port_factory(), settings.url)
        sender = Sender(collector.endpoint)
        await collector.start()
        sending = asyncio.create_task(sender.run())
        await kill_both(server, collector, sender)
        sending.cancel()
        begun = monotonic()
        while await points_in(settings) < POINTS * sender.acknowledged:  # noqa: ASYNC110  # another process stores them
            await asyncio.sleep(0.1)
        recovered = monotonic() - begun
        await collector.end(signal.SIGTERM)
        await compare(settings, sender.acknowledged)
    print(
        f"\n{KILLS} kills of PostgreSQL and of the collector by turns: {POINTS * sender.acknowledged} points "
        f"acknowledged, each stored once; the last ones {recovered:.1f} s after the last start"
    )


async def kill_both(server: PostgresServer, collector: Collector, sender: Sender) -> None:
    """Kills the server and the collector by turns, each while the sender makes progress."""
    moments = random.Random(2026)
    for kill in range(KILLS):
        enough = sender.acknowledged + 10
        while sender.acknowledged < enough:  # noqa: ASYNC110  # answers of another process
            await asyncio.sleep(0.01)
        await asyncio.sleep(moments.uniform(0, 0.2))
        if kill % 2:
            await collector.end(signal.SIGKILL)
            await collector.start()
        else:
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(moments.uniform(0, 0.5))
            await asyncio.to_thread(server.start)


async def compare(settings: WritableStoreConfig, acknowledged: int) -> None:
    """The store has every acknowledged point with its value, and at most one request more."""
    stored = flat(batch.metrics for batch in await read_all(settings, size=5000))
    expected = flat([gauges(SERIES, times=TIMES * acknowledged).metrics])
    assert {key: stored.get(key) for key in expected} == expected
    assert await points_in(settings) == len(stored) <= len(expected) + POINTS
