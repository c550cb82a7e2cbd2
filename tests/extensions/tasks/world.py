"""An engine in memory, whose tasks outlive the collector, and a supervisor that may crash at any point."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any

from otel_zernel.errors import NoAnswer
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_extensions.tasks.config import TasksConfig
from otel_zernel_extensions.tasks.engines.engine import Engine, Observed, TaskRejected, TaskSpec
from otel_zernel_extensions.tasks.states.machine import Event
from otel_zernel_extensions.tasks.states.store import TaskStore
from otel_zernel_extensions.tasks.states.task import StoredTask
from otel_zernel_extensions.tasks.supervisor import Supervisor


class _Crash(BaseException):
    """The process has ended."""


class Fuse:
    """Ends the process at one of its steps. A step that is not the last one has no effect on it."""

    def __init__(self) -> None:
        self.steps: int | None = None
        """The steps until the crash; None for no crash."""
        self.is_blown = False

    def burn(self) -> None:
        if self.is_blown:
            raise _Crash
        if self.steps is not None:
            self.steps -= 1
            if self.steps < 0:
                self.is_blown = True
                raise _Crash


class MemoryEngine(Engine):
    """Keeps the contract. A crash or a failure comes before or after each of its effects."""

    def __init__(self) -> None:
        self.fuse = Fuse()
        self.failures = 0
        """So many next calls fail, before or after their effect in turns."""
        self.runs: Counter[str] = Counter()
        """How often each task has started."""
        self.world: dict[str, Observed] = {}
        """What the engine knows, by handle."""
        self.cancelled: set[str] = set()
        self.forgotten: set[str] = set()
        self.refused: set[str] = set()
        self._calls = 0

    async def submit(self, task: TaskSpec) -> str:
        with self._call():
            if task.id in self.refused:
                raise TaskRejected("no such GPU")
            if f"handle of {task.id}" not in self.world:
                self.runs[task.id] += 1
                self.world[f"handle of {task.id}"] = Observed("starting")
        return f"handle of {task.id}"

    async def cancel(self, handle: str) -> None:
        with self._call():
            self.cancelled.add(handle)

    async def states(self, handles: Collection[str]) -> Mapping[str, Observed]:
        with self._call():
            return {handle: self.world[handle] for handle in handles if handle in self.world}

    async def logs(self, handle: str, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        yield b"output"

    async def recover(self, ids: Collection[str]) -> Mapping[str, str]:
        with self._call():
            return {id_: f"handle of {id_}" for id_ in ids if f"handle of {id_}" in self.world}

    async def forget(self, handle: str) -> None:
        with self._call():
            self.forgotten.add(handle)

    @contextlib.contextmanager
    def _call(self) -> Any:
        self._calls += 1
        fails = self.failures > 0
        if fails:
            self.failures -= 1
        self.fuse.burn()
        if fails and self._calls % 2:
            raise NoAnswer("the request was lost")
        yield
        self.fuse.burn()
        if fails:
            raise NoAnswer("the answer was lost")


class CrashingStore(TaskStore):
    """A store whose process may end before or after each write."""

    def __init__(self, path: Path, fuse: Fuse) -> None:
        super().__init__(path)
        self._fuse = fuse

    def add(self, task: StoredTask, most_queued: int) -> tuple[StoredTask, bool]:
        self._fuse.burn()
        add = super().add(task, most_queued)
        self._fuse.burn()
        return add

    def apply(self, id_: str, event: Event, now: float) -> tuple[StoredTask, StoredTask] | None:
        self._fuse.burn()
        apply = super().apply(id_, event, now)
        self._fuse.burn()
        return apply


class Collector:
    """A supervisor with its store, which can be killed and started again."""

    def __init__(self, folder: Path, engine: MemoryEngine, **config: Any) -> None:
        self.clock = FakeClock()
        self.engine = engine
        self._folder = folder
        self._config = TasksConfig.model_validate({"directory": folder, "max_running": 3, **config})

    async def start(self) -> None:
        self.engine.fuse = Fuse()
        self.store = CrashingStore(self._folder / "tasks.sqlite", self.engine.fuse)
        context = make_context("extensions", "tasks", clock=self.clock)
        self.supervisor = Supervisor(self._config, context, self.store, self.engine)
        await self.supervisor.open()

    async def kill(self) -> None:
        """Ends the process as `kill -9` does: nothing more is written."""
        self.engine.fuse.is_blown = True
        while self.supervisor.is_asking:  # noqa: ASYNC110  # each call meets the blown fuse
            await asyncio.sleep(0)
        self.store.close()

    async def act(self, work: Any) -> Any:
        """The result of a call of the supervisor; None if the process ends in it. Then it is started again."""
        result = None
        try:
            result = await work
            while self.supervisor.is_asking:  # noqa: ASYNC110
                await asyncio.sleep(0)
        except _Crash:
            pass
        except NoAnswer:
            while self.supervisor.is_asking:  # noqa: ASYNC110
                await asyncio.sleep(0)
        if self.engine.fuse.is_blown:
            await self.kill()
            await self.start()
            return None
        return result

    async def step(self) -> None:
        await self.act(self.supervisor.step())

    async def get(self, id_: str) -> StoredTask | None:
        return await self.supervisor.read(lambda store: store.get(id_))
