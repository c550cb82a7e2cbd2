"""A real collector that is killed again and again, and foreign clients."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from otel_zernel.testing import until
from tests.extensions.tasks.running import processes_of
from tests.free_ports import free_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tasks need Linux")
CONFIG = """
receivers: {otlp: {protocols: {http: {endpoint: "localhost:0"}}}}
exporters: {debug: {}}
extensions:
  api: {endpoint: "localhost:%d", rate_limit: null}
  tasks: {directory: "%s", poll_interval: 20ms, max_running: 4}
service:
  extensions: [api, tasks]
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines: {metrics: {receivers: [otlp], exporters: [debug]}}
"""


class KilledCollector:
    """A collector with tasks, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"http://localhost:{port}"
        self._config = folder / "config.yaml"
        self._config.write_text(CONFIG % (port, folder / "tasks"))
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        command = [sys.executable, "-m", "otel_zernel", "run", "--config", str(self._config)]
        self.process = await asyncio.create_subprocess_exec(*command)

    async def kill(self) -> None:
        if self.process:
            self.process.kill()
            await self.process.wait()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client, as soon as the collector answers."""
        async with httpx.AsyncClient(base_url=self.url, timeout=60) as client:
            async with asyncio.timeout(120):
                while True:
                    assert self.process
                    assert self.process.returncode is None, "the collector has ended"
                    try:
                        await client.get("/healthz")
                        break
                    except httpx.HTTPError:
                        await asyncio.sleep(0.02)
            yield client


@asynccontextmanager
async def collector(folder: Path) -> AsyncIterator[KilledCollector]:
    running = KilledCollector(folder)
    await running.start()
    try:
        yield running
    finally:
        await running.kill()


async def test_curl_runs_and_follows_a_task_and_ctrl_c_ends_only_the_collector(tmp_path: Path) -> None:
    def curl(*arguments: str) -> str:
        command = ["curl", "--silent", "--show-error", "--fail", "--max-time", "60", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    id_ = f"curl-{os.getpid()}"
    async with collector(tmp_path) as running:
        async with running.client():
            body = f'{{"id": "{id_}", "command": ["/bin/sh", "-c", "echo one; sleep 0.3; echo two"]}}'
            await asyncio.to_thread(curl, "-X", "POST", "-d", body, f"{running.url}/api/tasks")
            await asyncio.to_thread(
                curl, "--retry", "20", "--retry-all-errors", "--retry-delay", "1", f"{running.url}/api/tasks/{id_}/logs"
            )
            assert await asyncio.to_thread(curl, f"{running.url}/api/tasks/{id_}/logs?follow=true") == "one\ntwo\n"
            lasting = f'{{"id": "{id_}-2", "command": ["sleep", "1000"]}}'
            await asyncio.to_thread(curl, "-d", lasting, f"{running.url}/api/tasks")
            await until(lambda: processes_of(f"{id_}-2"), within=60)
        assert running.process
        running.process.send_signal(signal.SIGINT)
        assert await running.process.wait() == 0
        assert processes_of(f"{id_}-2")
        await running.start()
        async with running.client() as client:
            assert (await client.get(f"/api/tasks/{id_}-2")).json()["status"] == "running"
            await client.delete(f"/api/tasks/{id_}-2")
            await until(lambda: not processes_of(f"{id_}-2"), within=60)


async def test_a_second_collector_in_the_same_directory_does_not_start(tmp_path: Path) -> None:
    async with collector(tmp_path) as running, running.client():
        other = tmp_path / "other.yaml"
        other.write_text(CONFIG % (0, tmp_path / "tasks"))
        command = [sys.executable, "-m", "otel_zernel", "run", "--config", str(other)]
        second = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        try:
            _, errors = await asyncio.wait_for(second.communicate(), 120)
        finally:
            if second.returncode is None:
                second.kill()
        assert second.returncode not in (0, None)
        assert b"extensions::tasks::directory: cannot use" in errors
        assert b"is another collector running there?" in errors


@pytest.mark.parametrize(
    ("kills", "seed"), [(8, 3), *(pytest.param(50, seed, marks=pytest.mark.soak) for seed in range(20))]
)
async def test_kills_of_a_forked_collector_lose_nothing_and_run_nothing_twice(
    tmp_path: Path, kills: int, seed: int
) -> None:
    command = [sys.executable, "-m", "tests.extensions.tasks.killed_often", str(tmp_path), str(kills), str(seed)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f"{3 * kills} tasks" in done.stdout
