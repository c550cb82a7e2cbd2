"""A real collector that is killed again and again, and foreign clients."""

import asyncio
import os
import random
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


class Campaign:
    """Tasks with known exit codes. Each appends its id to a file when it runs."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.ran = folder / "ran"
        self.ran.touch()
        self.codes: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self.name = f"k{os.getpid()}"

    async def round(self, running: KilledCollector, count: int) -> None:
        """Posts tasks and cancels some, while the collector is killed at any moment of it."""
        async with running.client() as client:
            killing = asyncio.create_task(self._kill_soon(running))
            try:
                for _ in range(count):
                    await self._act(client)
            except httpx.HTTPError:
                pass
            await killing
        await running.start()

    async def repeat_all(self, client: httpx.AsyncClient) -> None:
        """Posts all tasks again, as a client does that has had no answer."""
        for id_ in self.codes:
            while not await self._is_posted(client, id_):  # noqa: ASYNC110  # a server has no event
                await asyncio.sleep(0.1)

    async def _is_posted(self, client: httpx.AsyncClient, id_: str) -> bool:
        answer = await client.post("/api/tasks", json=self._task(id_))
        assert answer.status_code in (200, 201, 503)  # 503: the disk is busy
        return answer.status_code != 503

    def check(self, tasks: dict[str, dict[str, object]]) -> None:
        ran = self.ran.read_text().split()
        assert len(ran) == len({*ran}), "a task has run twice"
        for id_, code in self.codes.items():
            task = tasks[id_]
            if id_ in self.cancelled:
                assert task["status"] in ("cancelled", "succeeded", "failed")
                assert task["status"] == "cancelled" or task["exit_code"] == code
            else:
                assert (task["status"], task.get("exit_code")) == ("failed" if code else "succeeded", code), task
                assert id_ in ran
            if "started" not in task:
                assert id_ not in ran, "a cancelled queued task has run"

    async def _act(self, client: httpx.AsyncClient) -> None:
        id_ = f"{self.name}-{len(self.codes)}"
        self.codes[id_] = self.random.choice([0, 0, 1, 77])
        await client.post("/api/tasks", json=self._task(id_))
        if self.random.random() < 0.3:
            chosen = self.random.choice([*self.codes])
            self.cancelled.add(chosen)
            await client.delete(f"/api/tasks/{chosen}")

    def _task(self, id_: str) -> dict[str, object]:
        wait = int(id_.rpartition("-")[2]) % 7 / 10
        script = f"echo {id_} >> {self.ran}; sleep {wait}; exit {self.codes[id_]}"
        return {"id": id_, "command": ["/bin/sh", "-c", script]}

    async def _kill_soon(self, running: KilledCollector) -> None:
        await asyncio.sleep(self.random.random() * 0.3)
        await running.kill()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("rounds", "seed"), [(4, 7), *(pytest.param(25, seed, marks=pytest.mark.soak) for seed in range(20))]
)
async def test_kills_at_random_moments_lose_no_task_and_no_exit_code(tmp_path: Path, rounds: int, seed: int) -> None:
    tasks_of = Campaign(tmp_path, seed)
    async with collector(tmp_path) as running:
        for _ in range(rounds):
            await tasks_of.round(running, count=8)
        async with running.client() as client:
            await tasks_of.repeat_all(client)
            tasks: dict[str, dict[str, object]] = {}
            async with asyncio.timeout(240):
                while any(task["status"] in ("queued", "starting", "running") for task in tasks.values()) or not tasks:
                    page = (await client.get("/api/tasks?limit=1000")).json()
                    tasks = {task["id"]: task for task in page["tasks"]}
                    await asyncio.sleep(0.05)
            tasks_of.check(tasks)
    await until(lambda: not any(processes_of(id_) for id_ in tasks_of.codes), within=60)


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


@pytest.mark.parametrize("kills", [15, pytest.param(50, marks=pytest.mark.soak)])
async def test_kills_of_a_forked_collector_lose_nothing_and_run_nothing_twice(tmp_path: Path, kills: int) -> None:
    command = [sys.executable, "-m", "tests.extensions.tasks.killed_often", str(tmp_path), str(kills), "3"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f"{3 * kills} tasks" in done.stdout
