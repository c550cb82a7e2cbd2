"""The routes of the fleet: JSON for programs and people, and WebSockets."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from otel_zernel_libraries.serving.api.answers import ApiError, json_answer, json_bytes
from otel_zernel_libraries.serving.api.routes import Parameter, Route
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.fleet.worker import Worker
from otel_zernel_receivers.heartbeat.http.body import AllWorkers
from otel_zernel_receivers.heartbeat.http.feed import WorkerFeed

_NUMBER: Final = {"type": "number"}
_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "boolean"}
_WHEN: Final = {"type": "integer", "description": "Seconds since 1970."}
_PER_CENT: Final = {"type": "number", "minimum": 0, "description": "Per cent."}


def _object(**properties: Any) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties}


_TASKS: Final = {
    "type": "array",
    "items": _object(
        task_id=_TEXT, cpu_allocated=_NUMBER, memory_allocated=_NUMBER, gpu_allocated=_NUMBER, status=_TEXT
    ),
}
_TELEMETRY: Final = _object(
    worker_id=_TEXT,
    cpu_usage=_PER_CENT,
    memory_usage=_PER_CENT,
    gpu_usage=_PER_CENT,
    running_tasks=_TASKS,
    last_update=_WHEN,
    is_active=_FLAG,
)
_METRICS: Final = _object(
    worker_id=_TEXT,
    cpu_usage=_PER_CENT,
    memory_usage=_PER_CENT,
    storage_usage=_PER_CENT,
    gpu_usage=_PER_CENT,
    last_update=_WHEN,
    is_active=_FLAG,
)
_DESCRIBED: Final = {
    "worker_id": _TEXT,
    "worker_ip": _TEXT,
    "total_cpu": _NUMBER,
    "total_memory": _NUMBER,
    "total_storage": _NUMBER,
    "total_gpu": _NUMBER,
    "is_active": _FLAG,
    "state": {"type": "string", "enum": ["active", "unknown", "inactive"]},
    "last_update": _WHEN,
}
_WORKERS: Final = {"type": "array", "items": _object(**_DESCRIBED, running_tasks={"type": "integer"})}
_WORKER: Final = _object(**_DESCRIBED, running_tasks=_TASKS, metrics=_METRICS)
_ID: Final = Parameter("id", "path", "The worker_id of its heartbeats.", _TEXT)
_FEED_PARAMETERS: Final = (
    Parameter("sequence", "query", 'With "true", messages are {"seq", "full", "workers"}.', _TEXT),
    Parameter("since", "query", "The last seq that the client has seen: it gets only later changes.", _TEXT),
)


class FleetApi:
    """Answers from the state of the workers."""

    def __init__(self, fleet: Fleet, telemetry: AllWorkers, listed: AllWorkers, feed: WorkerFeed) -> None:
        self._fleet = fleet
        self._telemetry = telemetry
        self._listed = listed
        self._feed = feed

    def routes(self) -> list[Route]:
        """All routes of the receiver."""
        return [
            self._get("/health", self._health, "Whether the receiver runs.", _object(status=_TEXT)),
            self._all("/telemetry", self._telemetry, "The telemetry of all workers, by id.", _by_id(_TELEMETRY)),
            self._get("/telemetry/{id}", self._one, "The telemetry of a worker.", _TELEMETRY),
            self._all("/workers", self._listed, "All workers and their state.", _WORKERS),
            self._all("/api/workers", self._listed, "All workers and their state.", _WORKERS),
            self._get("/api/workers/{id}", self._detail, "A worker, its usages and its tasks.", _WORKER),
            self._get("/api/workers/{id}/metrics", self._usages, "The usages of a worker.", _METRICS),
            self._get("/api/workers/{id}/tasks", self._tasks, "The tasks that run on a worker.", _TASKS),
            self._websocket("/ws"),
            self._websocket("/ws/telemetry"),
            self._websocket("/ws/telemetry/{id}"),
        ]

    def _get(self, path: str, body: Callable[[str], bytes], summary: str, answer: Mapping[str, Any]) -> Route:
        parameters = (_ID,) if "{id}" in path else ()
        return Route(path, _answering(body), summary=summary, parameters=parameters, answer=answer)

    def _all(self, path: str, everything: AllWorkers, summary: str, answer: Mapping[str, Any]) -> Route:
        return Route(path, _answering_all(everything), summary=summary, answer=answer)

    def _websocket(self, path: str) -> Route:
        has_id = "{id}" in path
        scope = "the worker" if has_id else "all workers"
        return Route(
            path,
            self._feed.serve,
            kind="websocket",
            summary=f"The telemetry of {scope} on connecting, and then after each change.",
            parameters=(_ID, _FEED_PARAMETERS[0]) if has_id else _FEED_PARAMETERS,
        )

    def _health(self, _: str) -> bytes:
        return b'{"status":"ok"}'

    def _one(self, worker_id: str) -> bytes:
        return self._worker(worker_id).telemetry

    def _detail(self, worker_id: str) -> bytes:
        worker = self._worker(worker_id)
        tasks = [task._asdict() for task in worker.tasks]
        return json_bytes({**worker.described(), "running_tasks": tasks, "metrics": worker.usages()})

    def _usages(self, worker_id: str) -> bytes:
        return json_bytes(self._worker(worker_id).usages())

    def _tasks(self, worker_id: str) -> bytes:
        return self._worker(worker_id).tasks_json.encode()

    def _worker(self, worker_id: str) -> Worker:
        if worker := self._fleet.workers.get(worker_id):
            return worker
        raise ApiError(404, f"there is no worker {worker_id:.100}; /workers lists the present ones")


def _by_id(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "additionalProperties": schema}


def _answering(body: Callable[[str], bytes]) -> Callable[[Any, Any, Any], Awaitable[None]]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await json_answer(send, body(scope["path_params"].get("id", "")))

    return app


def _answering_all(everything: AllWorkers) -> Callable[[Any, Any, Any], Awaitable[None]]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = await everything.body()
        tag = everything.tag(body)
        fields = [(b"cache-control", b"no-cache"), *([(b"etag", tag)] if tag else [])]
        if tag and tag in dict(scope["headers"]).get(b"if-none-match", b""):
            await send({"type": "http.response.start", "status": 304, "headers": fields})
            await send({"type": "http.response.body", "body": b""})
            return
        fields += [(b"content-type", b"application/json"), (b"content-length", str(body.size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        for number, part in enumerate(body.parts, 1):
            await send({"type": "http.response.body", "body": part, "more_body": number < len(body.parts)})

    return app
