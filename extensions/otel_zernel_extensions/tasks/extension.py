"""The tasks extension: starts and stops its parts."""

import asyncio
import sqlite3
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from otel_zernel.component import Context, Extension, Finding
from otel_zernel.errors import CannotStart
from otel_zernel.runtime.tasks import cancel
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_extensions.tasks.config import TasksConfig
from otel_zernel_libraries.serving.api.server import api_server

if TYPE_CHECKING:  # a list of components does without these modules
    from otel_zernel_extensions.tasks.engines.engine import Engine


class TasksExtension(Extension):
    """Runs commands as tasks for clients of the API, and keeps their states, exit codes and output."""

    Config = TasksConfig
    stability = "alpha"

    def __init__(self, config: TasksConfig, context: Context) -> None:
        super().__init__(config, context)
        from otel_zernel_extensions.tasks.states.store import TaskStore
        from otel_zernel_extensions.tasks.supervisor import Supervisor

        self._engine = _engine(config, context)
        self._supervisor = Supervisor(config, context, TaskStore(config.directory / "tasks.sqlite"), self._engine)

    async def __aenter__(self) -> Self:
        from otel_zernel_extensions.tasks.api.routes import TaskRoutes

        server = api_server(self.config.api, self.context, f"{self.context.path}::api")
        self._stack.push_async_callback(self._supervisor.close)
        await self._open_store()
        await self._stack.enter_async_context(self._engine)
        routes = TaskRoutes(self._supervisor, self._engine, self.config.max_log_readers)
        self._stack.enter_context(server.serve(self.context.path, routes.routes))
        running = asyncio.create_task(self._supervisor.run(), name=f"{self.context.path} supervisor")
        self._stack.push_async_callback(cancel, running)
        return self

    @classmethod
    def examine(cls, config: Any = None) -> Iterable[Finding]:
        directory = (config or TasksConfig()).directory
        if config and not directory.parent.is_dir():
            yield Finding("directory", f"{directory.parent} does not exist; create it", ok=False)
        if config and config.engine == "local":
            from otel_zernel_extensions.tasks.engines.local.limits import limits_found

            yield limits_found(config.local.cgroup)

    async def _open_store(self) -> None:
        from otel_zernel_extensions.tasks.states.store import UnknownSchema

        directory, where = self.config.directory, f"{self.context.path}::directory"
        try:
            await run_in_thread(lambda: _make_private(directory, where))
            await self._supervisor.open()
        except OSError as error:
            raise CannotStart(f"{where}: cannot use {directory}: {error.strerror}; choose another directory") from error
        except UnknownSchema as error:
            raise CannotStart(f"{where}: {error}; install a newer release, or choose another directory") from error
        except sqlite3.Error as error:
            raise CannotStart(
                f"{where}: cannot use {directory}: {error}; is another collector running there?"
            ) from error


def _make_private(directory: Path, where: str) -> None:
    """Makes the directory. Raises `CannotStart` if every user of the machine may write to it, or `OSError`."""
    directory.mkdir(0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & stat.S_IWOTH:
        raise CannotStart(
            f"{where}: every user may write to {directory}, and so run commands; chmod 700 it, or choose another one"
        )


def _engine(config: TasksConfig, context: Context) -> "Engine":
    if config.engine == "kubernetes":
        from otel_zernel_extensions.tasks.engines.kubernetes import KubernetesEngine

        return KubernetesEngine(config.kubernetes, context)
    if config.engine == "slurm" and config.slurm:
        from otel_zernel_extensions.tasks.engines.slurm import SlurmEngine

        return SlurmEngine(config.slurm, context)
    from otel_zernel_extensions.tasks.engines.local import LocalEngine

    return LocalEngine(config.local, context, config.directory / "local")
