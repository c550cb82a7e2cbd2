"""The local engine: each task is a process of this machine, with a keeper as its parent and a file of its output."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from otel_zernel.clock import Clock
from otel_zernel.component import Context
from otel_zernel.errors import CannotStart, NoAnswer
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_extensions.tasks.engines.disk import from_disk, start_of_last
from otel_zernel_extensions.tasks.engines.engine import (
    ENDED,
    Engine,
    LogsGone,
    Observed,
    TaskRejected,
    TaskSpec,
    task_environment,
)
from otel_zernel_extensions.tasks.engines.local import keeper
from otel_zernel_extensions.tasks.engines.local.config import LocalConfig
from otel_zernel_extensions.tasks.engines.local.folder import TaskFolder, delete_remains
from otel_zernel_extensions.tasks.engines.local.limits import applied_limits, group_of, missing_of

_PIECE: Final = 1 << 16
_INTERVAL: Final = 0.2
"""Seconds between two looks at an output that is followed."""


async def output_of(folder: TaskFolder, clock: Clock, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
    """As `Engine.logs`."""
    position = await from_disk(lambda: _beginning(folder, tail))
    if tail is None and position:
        yield f"[the first {position} bytes of the output are deleted]\n".encode()
    while True:
        has_ended = follow and await from_disk(folder.has_ended)
        while True:
            piece, position = await from_disk(lambda at=position: _piece(folder, at))  # type: ignore[misc]
            if not piece:
                break
            yield piece
        if not follow or has_ended:
            return
        await clock.sleep(_INTERVAL)


def _beginning(folder: TaskFolder, tail: int | None) -> int:
    """The position of the first byte to read."""
    cut = folder.cut()
    if not folder.path.exists():
        raise LogsGone("the output of the task is deleted")
    if tail is None:
        return cut
    try:
        descriptor = os.open(folder.output, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return cut
    try:
        return start_of_last(descriptor, tail, cut)
    finally:
        os.close(descriptor)


def _piece(folder: TaskFolder, position: int) -> tuple[bytes, int]:
    """The next bytes, and the position after them. Bytes that are gone meanwhile are left out."""
    position = max(position, folder.cut())
    try:
        with folder.output.open("rb") as file:
            if file.seek(0, 2) < position:  # the output was cut to nothing, where files cannot have holes
                position = 0
            file.seek(position)
            data = file.read(_PIECE)
    except FileNotFoundError:
        return b"", position
    return data, position + len(data)


CLAIMED: Final = b"claimed\n"
"""The answer of a keeper that works."""


def started_keeper(folder: Path) -> tuple[int, bytes]:
    """Starts the keeper of a task. Returns its pid and its answer, as soon as it has answered. Raises `OSError`."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", keeper.__file__, str(folder)],
            {},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writing, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    with open(reading, "rb") as pipe:  # noqa: PTH123  # not a path
        return pid, pipe.read()


def has_left(pid: int) -> bool:
    """Whether a child has ended. If so, it is not in the table of processes any more."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


T = TypeVar("T")
_THREADS: Final = 4


class LocalEngine(Engine):
    """Runs tasks as processes. The handle of a task is its id."""

    def __init__(
        self, config: LocalConfig, context: Context, directory: Path, environment: Mapping[str, str] = os.environ
    ) -> None:
        """`directory` gets a folder for each task. `environment` is that of the collector."""
        self._config = config
        self._context = context
        self._directory = directory
        self._environment = environment
        self._threads = ThreadPoolExecutor(_THREADS, "local tasks")
        self._gpus: dict[str, tuple[str, ...]] = {}
        """The GPUs of each task that has not ended."""
        self._keepers: set[int] = context.kept.setdefault("keepers", set())
        """The pids of the keepers that are children of this process, which has to wait for them."""
        self._giving = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._threads = ThreadPoolExecutor(_THREADS, "local tasks")
        self._directory = self._directory.absolute()
        cgroup = self._config.cgroup
        if cgroup and (missing := await self._done(lambda: missing_of(cgroup))):
            raise CannotStart(f"{self._context.path}::local::cgroup: {missing}")
        try:
            await self._done(self._open)
        except NoAnswer as error:
            raise CannotStart(f"{self._context.path}::directory: cannot use {self._directory}: {error}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False)

    def check(self, task: TaskSpec) -> None:
        most = len(self._config.gpus)
        if task.limits.gpus and not most:
            raise TaskRejected("this collector assigns no GPUs to tasks; list them in local::gpus")
        if task.limits.gpus > most:
            raise TaskRejected(f"{task.limits.gpus} GPUs are more than the {most} that tasks may use here")

    def has_room(self, task: TaskSpec, active: Collection[TaskSpec]) -> bool:
        return task.limits.gpus + sum(task.limits.gpus for task in active) <= len(self._config.gpus)

    async def submit(self, task: TaskSpec) -> str:
        folder = self._folder(task.id)
        async with self._giving:
            if await self._done(lambda: folder.is_claimed):
                return task.id
            gpus = self._gpus.get(task.id) or self._free_gpus(task.limits.gpus)
            self._gpus[task.id] = gpus
        await self._done(lambda: self._start(task, folder, gpus))
        return task.id

    async def cancel(self, handle: str) -> None:
        await self._done(self._folder(handle).cancel)

    async def states(self, handles: Collection[str]) -> Mapping[str, Observed]:
        done = await self._done(lambda: {handle: self._folder(handle).observed() for handle in handles})
        for handle, observed in done.items():
            if observed is None or observed.status in ENDED:
                self._gpus.pop(handle, None)
        self._wait_for_keepers()
        return {handle: observed for handle, observed in done.items() if observed}

    def logs(self, handle: str, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        return output_of(self._folder(handle), self._context.clock, follow, tail)

    async def recover(self, ids: Collection[str]) -> Mapping[str, str]:
        def not_started() -> set[str]:
            return {id_ for id_ in ids if self._folder(id_).void()}

        absent = await self._done(not_started)
        for handle in absent:
            self._gpus.pop(handle, None)
        return {id_: id_ for id_ in ids if id_ not in absent}

    async def release(self, handle: str) -> None:
        with suppress(NoAnswer):  # `forget` tries again
            await self._done(lambda: self._remove_group(handle))
        self._wait_for_keepers()

    async def forget(self, handle: str) -> None:
        await self._done(lambda: self._forget(handle))

    def _folder(self, id_: str) -> TaskFolder:
        return TaskFolder(self._directory / id_)

    def _open(self) -> None:
        """Reads which GPUs the tasks of an earlier process have."""
        self._directory.mkdir(0o700, exist_ok=True)
        delete_remains(self._directory)
        for path in self._directory.iterdir():
            folder = TaskFolder(path)
            if not folder.has_ended() and (gpus := folder.described().get("gpus")):
                self._gpus[path.name] = (*gpus,)

    def _free_gpus(self, count: int) -> tuple[str, ...]:
        taken = {gpu for gpus in self._gpus.values() for gpu in gpus}
        free = [gpu for gpu in self._config.gpus if gpu not in taken]
        if count > len(free):
            raise NoAnswer(f"{count} GPUs are not free yet")
        return (*free[:count],)

    def _start(self, task: TaskSpec, folder: TaskFolder, gpus: tuple[str, ...]) -> None:
        """Starts a keeper, and waits for its claim, or the one of another keeper."""
        folder.prepare(self._description(task, gpus))
        pid, answer = started_keeper(folder.path)
        self._keepers.add(pid)
        if answer != CLAIMED:
            raise NoAnswer("the process that watches the task has ended; is the memory or the disk full?")

    def _description(self, task: TaskSpec, gpus: tuple[str, ...]) -> dict[str, Any]:
        """The content of `task.json`."""
        inherited = {
            name: self._environment[name] for name in self._config.pass_environment if name in self._environment
        }
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if self._config.gpus else {}
        return {
            "command": task.command,
            "environment": {**inherited, **task_environment(task), **visible},
            "working_dir": task.working_dir,
            "limits": {"time": task.limits.time},
            "gpus": gpus,
            "grace": self._config.grace,
            "max_log_size": self._config.max_log_size,
            **applied_limits(task, self._config.cgroup),
        }

    def _forget(self, handle: str) -> None:
        self._folder(handle).delete()
        self._remove_group(handle)

    def _remove_group(self, handle: str) -> None:
        if self._config.cgroup:
            with suppress(FileNotFoundError):
                group_of(self._config.cgroup, handle).rmdir()

    def _wait_for_keepers(self) -> None:
        """Lets the ended keepers leave the table of processes."""
        for pid in self._keepers.copy():
            if has_left(pid):
                self._keepers.discard(pid)

    async def _done(self, work: Callable[[], T]) -> T:
        """Runs blocking work in a thread. Raises `NoAnswer` if the disk or the kernel refuses it."""
        try:
            return await run_in_thread(work, self._threads)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise NoAnswer(f"{error.strerror}{where}") from error
