"""A running tasks extension with the local engine, and its API without a network."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.metrics import Meter

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_extensions.tasks import TasksExtension
from otel_zernel_extensions.tasks.config import TasksConfig
from otel_zernel_extensions.tasks.states.task import FINAL
from tests.api_server import FakeAnswer, FakeApiServer

SH = ["/bin/sh", "-c"]


@dataclass(frozen=True, slots=True)
class TaskClient:
    """A client of the API."""

    api: FakeApiServer

    async def post(self, *, key: str | None = None, **task: Any) -> FakeAnswer:
        headers = {"idempotency-key": key} if key else {}
        return await self.api.request("POST", "/api/tasks", json.dumps(task).encode(), headers)

    async def shell(self, id_: str, script: str, **more: Any) -> None:
        """Runs a script of the shell as a task."""
        answer = await self.post(id=id_, command=[*SH, script], **more)
        assert answer.status == 201, answer.body

    async def get(self, id_: str) -> dict[str, Any]:
        answer = await self.api.get(f"/api/tasks/{id_}")
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.json
        return found

    async def delete(self, id_: str) -> FakeAnswer:
        return await self.api.request("DELETE", f"/api/tasks/{id_}")

    async def reaches(self, id_: str, *statuses: str) -> dict[str, Any]:
        """The task, as soon as it has one of these states."""
        async with asyncio.timeout(60):
            while (task := await self.get(id_))["status"] not in statuses:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return task

    async def end(self, id_: str) -> dict[str, Any]:
        """The task, as soon as it has ended."""
        return await self.reaches(id_, *FINAL)

    async def log(self, id_: str, query: str = "") -> bytes:
        return (await self.api.get(f"/api/tasks/{id_}/logs{query}")).body

    async def has_logged(self, id_: str, text: bytes) -> None:
        """Returns when the output of the task contains the text."""
        async with asyncio.timeout(60):
            while text not in await self.log(id_):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(directory: Path, *, meter: Meter | None = None, **config: Any) -> AsyncIterator[TaskClient]:
    """The extension with these options. It asks the engine often."""
    api = FakeApiServer()
    parsed = TasksConfig.model_validate({"directory": directory, "poll_interval": "20ms", **config})
    context = make_context("extensions", "tasks", clock=SystemClock(), extensions={"api": api}, meter=meter)
    async with TasksExtension(parsed, context):
        yield TaskClient(api)


def processes_of(id_: str) -> list[int]:
    """The processes on this machine that belong to a task."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                environment = (folder / "environ").read_bytes()
                state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if f"ZERNEL_TASK_ID={id_}".encode() in environment.split(b"\0") and state not in (b"Z", b"X"):
                found.append(int(folder.name))
    return found
