"""Ten thousand short tasks on a collector that is killed every 20 s."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.extensions.tasks.running import processes_of
from tests.extensions.tasks.test_kills import KilledCollector, collector

pytestmark = [pytest.mark.soak, pytest.mark.timeout(86_400)]

TASKS = int(os.environ.get("SOAK_TASKS", "10000"))
SECONDS = float(os.environ.get("SOAK_MINUTES", "10")) * 60
PERIOD = 20.0
"""Seconds between two kills."""


class Lives:
    """The resident memory of the collector, in MiB, just before each of its ends."""

    def __init__(self, running: KilledCollector) -> None:
        self._running = running
        self.memory: list[float] = []
        self.ended = asyncio.Event()

    async def run(self) -> None:
        """Kills and restarts the collector until `ended` is set. Then it runs."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), PERIOD)
                return
            assert self._running.process
            self.memory.append(psutil.Process(self._running.process.pid).memory_info().rss / 2**20)
            await self._running.kill()
            await self._running.start()


@asynccontextmanager
async def killed_often(running: KilledCollector) -> AsyncIterator[Lives]:
    lives = Lives(running)
    killing = asyncio.create_task(lives.run())
    try:
        yield lives
    finally:
        lives.ended.set()
        await killing


async def insisting(client: httpx.AsyncClient, method: str, path: str, **more: object) -> httpx.Response:
    """The answer to a request, which is repeated until there is one, and until there is room."""
    while True:
        try:
            answer = await client.request(method, path, **more)  # type: ignore[arg-type]
        except httpx.HTTPError:
            await asyncio.sleep(0.1)
            continue
        if answer.status_code < 429:
            return answer
        await asyncio.sleep(0.2)


def code_of(number: int) -> int:
    return (0, 0, 1, 77)[number % 4]


async def test_kills_every_20_s_lose_no_task_and_run_none_twice(tmp_path: Path) -> None:
    name, ran = f"soak{os.getpid()}", tmp_path / "ran"
    async with collector(tmp_path) as running, httpx.AsyncClient(base_url=running.url, timeout=30) as client:
        begun = time.monotonic()
        async with killed_often(running) as lives:
            for number in range(TASKS):
                script = f"echo {number} >> {ran}; exit {code_of(number)}"
                task = {"id": f"{name}-{number}", "command": ["/bin/sh", "-c", script]}
                assert (await insisting(client, "POST", "/api/tasks", json=task)).status_code in (200, 201)
                await asyncio.sleep(max(0.0, begun + number * SECONDS / TASKS - time.monotonic()))
            wanted = "status=queued,starting,running&limit=1"
            while (await insisting(client, "GET", f"/api/tasks?{wanted}")).json()["tasks"]:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        await check(client, name, ran)
    assert not [id_ for id_ in range(TASKS) if id_ % 100 == 0 and processes_of(f"{name}-{id_}")]
    memory, half = lives.memory, len(lives.memory) // 2
    print(f"\n{TASKS:,} tasks, {len(memory)} kills, {time.monotonic() - begun:.0f} s")
    print(f"{max(memory[:half]):.0f} MiB at most in the first half, {max(memory[half:]):.0f} MiB in the second")
    assert max(memory[half:]) < max(memory[:half]) * 1.15


async def check(client: httpx.AsyncClient, name: str, ran: Path) -> None:
    """Each task has run once, and its exit code is known."""
    lines = ran.read_text().split()  # noqa: ASYNC240  # a file of the test
    assert len(lines) == TASKS, "a task has run twice, or not at all"
    assert {*map(int, lines)} == {*range(TASKS)}
    found: dict[str, tuple[str, int]] = {}
    after = ""
    while True:
        page = (await insisting(client, "GET", f"/api/tasks?limit=1000{after}")).json()
        found |= {task["id"]: (task["status"], task.get("exit_code")) for task in page["tasks"]}
        if not page["next"]:
            break
        after = f"&after={page['next']}"
    wanted = {code: ("failed" if code else "succeeded", code) for code in (0, 1, 77)}
    assert found == {f"{name}-{number}": wanted[code_of(number)] for number in range(TASKS)}
