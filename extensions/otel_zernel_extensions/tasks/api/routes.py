"""The routes of tasks."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Final

from otel_zernel.errors import NoAnswer
from otel_zernel.runtime.tasks import run_until
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_extensions.tasks.api.requests import (
    MOST_BYTES,
    ListRequest,
    LogRequest,
    RequestedTask,
    header,
    spec_of,
)
from otel_zernel_extensions.tasks.engines.engine import Engine, LogsGone, TaskRejected
from otel_zernel_extensions.tasks.states.store import QueueFull, TaskConflict
from otel_zernel_extensions.tasks.states.task import STATUSES, StoredTask
from otel_zernel_extensions.tasks.supervisor import Supervisor
from otel_zernel_libraries.serving.api.answers import ApiError, client_gone, json_answer, read_body
from otel_zernel_libraries.serving.api.routes import App, Parameter, Route

_SOON: Final = ((b"retry-after", b"1"),)
_SHORT: Final = 1 << 14
"""Bytes of a body that is parsed in the event loop."""
_STEP: Final = 2.0
"""Seconds to wait for the state of a task whose output has ended."""
_FULL: Final = ((b"retry-after", b"30"),)


class TaskRoutes:
    """Answers the requests for tasks."""

    def __init__(self, supervisor: Supervisor, engine: Engine, most_readers: int) -> None:
        self._supervisor = supervisor
        self._engine = engine
        self._most_readers = most_readers
        self._readers = 0

    @property
    def routes(self) -> list[Route]:
        """All are refused to other machines as long as the server has no `auth`: they start programs or show them."""
        statuses = ", ".join(STATUSES)
        page = (
            Parameter("status", "query", f"States, joined by commas: {statuses}.", {"type": "string"}),
            Parameter("limit", "query", "The most tasks of a page.", {"type": "integer", "maximum": 1000}),
            Parameter("after", "query", "The value of `next` of the page before.", {"type": "integer"}),
        )
        lines = (
            Parameter("follow", "query", "Go on until the task ends.", {"type": "boolean"}),
            Parameter("tail", "query", "Begin with so many last lines.", {"type": "integer", "minimum": 0}),
        )
        body = RequestedTask.model_json_schema(ref_template="#/$defs/{model}")
        limits = body.pop("$defs")["RequestedLimits"]
        body["properties"]["limits"] = limits
        return [
            _route("/api/tasks", self._add, "POST", "Runs a command as a task.", body=body, answer=TASK),
            _route("/api/tasks", self._list, "GET", "The tasks, newest first.", parameters=page, answer=LIST),
            _route("/api/tasks/{id}", self._get, "GET", "One task.", answer=TASK),
            _route("/api/tasks/{id}", self._cancel, "DELETE", "Cancels a task that has not ended.", answer=TASK),
            _route(
                "/api/tasks/{id}/logs",
                self._logs,
                "GET",
                "The output of a task.",
                parameters=lines,
                content_type="text/plain; charset=utf-8",
            ),
        ]

    async def _add(self, scope: Any, receive: Any, send: Any) -> None:
        body, key = await read_body(receive, MOST_BYTES), header(scope["headers"], b"idempotency-key")
        # A hostile body of 256 KiB takes 50 ms.
        spec = spec_of(body, key) if len(body) < _SHORT else await run_in_thread(lambda: spec_of(body, key))
        try:
            task, is_new = await self._supervisor.add(spec)
        except TaskRejected as refused:
            raise ApiError(422, str(refused)) from refused
        except TaskConflict as conflict:
            raise ApiError(409, str(conflict)) from conflict
        except QueueFull as full:
            raise ApiError(429, str(full), _FULL) from full
        place = (b"location", f"/api/tasks/{spec.id}".encode())
        await json_answer(send, rendered(task), 201 if is_new else 200, (place,))

    async def _list(self, scope: Any, receive: Any, send: Any) -> None:
        wanted = ListRequest(scope)
        tasks, more = await self._supervisor.read(
            lambda store: store.page(wanted.statuses, wanted.before, wanted.limit)
        )
        await json_answer(send, {"tasks": [rendered(task) for task in tasks], "next": more})

    async def _get(self, scope: Any, receive: Any, send: Any) -> None:
        await json_answer(send, rendered(await self._found(scope)))

    async def _cancel(self, scope: Any, receive: Any, send: Any) -> None:
        id_ = scope["path_params"]["id"]
        task = await self._supervisor.cancel(id_)
        if task is None:
            raise _unknown(id_)
        await json_answer(send, rendered(task), 200 if task.is_final else 202)

    async def _logs(self, scope: Any, receive: Any, send: Any) -> None:
        wanted, task = LogRequest(scope), await self._found(scope)
        if task.handle is None:
            raise ApiError(404, f"the task {task.spec.id} has not started, so it has no output")
        if self._readers >= self._most_readers:
            raise ApiError(503, f"{self._readers} clients read logs already; try again later", _FULL)
        self._readers += 1
        try:
            await run_until(self._sent_logs(task.handle, wanted, send), client_gone(receive), "logs of a task")
        finally:
            self._readers -= 1

    async def _sent_logs(self, handle: str, wanted: LogRequest, send: Any) -> None:
        """Sends the output, until its end."""
        async with aclosing(self._engine.logs(handle, wanted.follow, wanted.tail)) as pieces:  # type: ignore[type-var]
            try:
                first = await anext(pieces, None)
            except LogsGone as gone:
                raise ApiError(404, str(gone)) from gone
            except NoAnswer as error:
                raise ApiError(503, f"the output cannot be read now: {error}", _SOON) from error
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if first is not None:
                await send({"type": "http.response.body", "body": first, "more_body": True})
            try:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except NoAnswer as error:
                last = f"\n[the rest of the output cannot be read now: {error}]\n".encode()
                await send({"type": "http.response.body", "body": last, "more_body": True})
            if wanted.follow:
                # A client that asks for the task now expects its end.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_STEP):
                        await self._supervisor.looked()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _found(self, scope: Any) -> StoredTask:
        id_: str = scope["path_params"]["id"]
        task = await self._supervisor.read(lambda store: store.get(id_))
        if task is None:
            raise _unknown(id_)
        return task


def _route(path: str, app: Callable[[Any, Any, Any], Awaitable[None]], method: str, summary: str, **more: Any) -> Route:
    return Route(path, _answering(app), methods=(method,), summary=summary, needs_token=True, **more)


def _answering(app: App) -> App:
    """The application, with an answer for a disk that fails."""

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except sqlite3.Error as error:
            raise ApiError(503, f"the tasks cannot be stored or read now: {error}", _SOON) from error

    return answered


def _unknown(id_: str) -> ApiError:
    return ApiError(404, f"there is no task {id_:.60}; ended tasks are deleted after a while")


_TIME: Final = {"type": "number", "description": "s since 1970"}
TASK: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string"},
        "status": {"type": "string", "enum": [*STATUSES]},
        "cancel_requested": {"type": "boolean"},
        "exit_code": {"type": "integer"},
        "signal": {"type": "integer"},
        "reason": {"type": "string"},
        "created": _TIME,
        "started": _TIME,
        "ended": _TIME,
        "command": {"type": "array", "items": {"type": "string"}},
        "env": {"type": "array", "items": {"type": "string"}, "description": "Names only: values may be secrets."},
        "working_dir": {"type": "string"},
        "limits": {"type": "object"},
    },
    "required": ["id", "status", "command", "created"],
}
"""The JSON Schema of a task."""
LIST: Final = {
    "type": "object",
    "properties": {
        "tasks": {"type": "array", "items": TASK},
        "next": {"type": ["integer", "null"], "description": "The value of `after` for the next page."},
    },
}


def rendered(task: StoredTask) -> dict[str, Any]:
    """The task for clients. Unknown fields are left out."""
    spec, limits = task.spec, task.spec.limits
    asked = {"cpu": limits.cpu, "memory": limits.memory, "gpus": limits.gpus or None, "time": limits.time}
    fields = {
        "id": spec.id,
        "name": spec.name or None,
        "status": task.status,
        "cancel_requested": task.cancel_requested or None,
        "exit_code": task.exit_code,
        "signal": task.signal,
        "reason": task.reason or None,
        "created": task.created,
        "started": task.started,
        "ended": task.ended,
        "command": [*spec.command],
        "env": sorted(spec.env) or None,
        "working_dir": spec.working_dir,
        "limits": {name: value for name, value in asked.items() if value is not None} or None,
    }
    return {name: value for name, value in fields.items() if value is not None}
