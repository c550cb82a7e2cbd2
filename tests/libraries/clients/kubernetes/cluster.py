"""An API server of Kubernetes for tests: stores Jobs and pods, watches, logs. The test is the controller and kubelet.

Behaviour follows the API conventions: one growing version for all objects, 409 and 404 as `Status`, watches that end,
and 410 as an event within a 200.
"""

import asyncio
import copy
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

Json = dict[str, Any]
TIME = "2026-11-22T10:00:00Z"


@dataclass
class Log:
    """The log of a container: lines with their times."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    ended: bool = False


class FakeCluster:
    """An ASGI application, and the hands of the cluster behind it."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Json]] = {"jobs": {}, "pods": {}}
        self.events: list[tuple[int, str, str, Json]] = []
        self.version = 10
        self.oldest = 0
        """Watches from before this version get 410."""
        self.requests: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.queries: list[tuple[str, Json]] = []
        self.bodies: list[Json] = []
        self.warnings: dict[str, list[Json]] = {}
        """Events by the uid of their object."""
        self.logs: dict[str, Log] = {}
        self.cut_log_after: int | None = None
        """The next log stream ends after so many bytes."""
        self.interfere: Callable[[str, str], tuple[int, Json] | None] = lambda method, path: None
        """May answer in place of the server."""
        self.lose_answer_of = ""
        """A method: its next request is done, and its connection is cut before the answer."""
        self.token: str | None = None
        self.watches_hang = False
        """Whether new watches get no answer: a server that starts, or a proxy before one that is away."""
        self._changed = asyncio.Event()
        self._watchers: set[asyncio.Task[Any]] = set()

    # The controller and the kubelet

    def add_pod(self, job: str, name: str = "", **status: Any) -> str:
        """The pod that the Job's controller makes."""
        name = name or f"{job}-x1"
        template = self.objects["jobs"][job]["spec"]["template"]
        labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-name": job, "job-name": job}
        metadata = {"name": name, "labels": labels, "creationTimestamp": TIME}
        self._store("pods", {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending", **status}})
        self.logs.setdefault(name, Log())
        return name

    def set_state(self, pod: str, phase: str, state: Json, **status: Any) -> None:
        """What the kubelet reports about the task's container."""
        item = copy.deepcopy(self.objects["pods"][pod])
        item["status"] = {"phase": phase, "containerStatuses": [{"name": "task", "state": state}], **status}
        self._store("pods", item)

    def run(self, pod: str) -> None:
        self.set_state(pod, "Running", {"running": {"startedAt": TIME}})

    def end(self, pod: str, code: int, reason: str = "", **status: Any) -> None:
        ended = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "startedAt": TIME}
        state = {"terminated": {**ended, "finishedAt": "2026-11-22T10:01:00Z"}}
        self.set_state(pod, "Failed" if code else "Succeeded", state, **status)
        self.logs[pod].ended = True
        self._wake()

    def finish_job(self, job: str, type_: str, reason: str = "", message: str = "") -> None:
        item = copy.deepcopy(self.objects["jobs"][job])
        condition = {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": TIME}
        item["status"] = {"startTime": TIME, "conditions": [condition]}
        self._store("jobs", item)

    def delete(self, kind: str, name: str) -> None:
        item = self.objects[kind].pop(name)
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self._event("DELETED", kind, item)

    def put_pod(self, item: Json) -> None:
        """Creates or changes a pod of any kind. The key of a pod is its uid."""
        item = copy.deepcopy(item)
        self._store("pods", item, item["metadata"]["uid"])

    def mark_deleting(self, pod: str) -> None:
        item = copy.deepcopy(self.objects["pods"][pod])
        item["metadata"]["deletionTimestamp"] = TIME
        self._store("pods", item)

    def compact(self) -> None:
        """Forgets all events: watches of older versions get 410."""
        self.events.clear()
        self.version += 1
        self.oldest = self.version

    def cut_watches(self) -> None:
        for task in self._watchers:
            task.cancel()

    def write(self, pod: str, *lines: tuple[str, str]) -> None:
        self.logs[pod].lines += lines
        self._wake()

    # The API server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path, method = scope["path"], scope["method"]
        query = {key: values[0] for key, values in parse_qs(scope["query_string"].decode()).items()}
        body = await body_of(receive)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.headers.append(headers)
        self.queries.append((path, query))
        kind = "watch" if "watch" in query else "log" if path.endswith("/log") else path.split("/namespaces/train/")[-1]
        self.requests[f"{method} {kind}"] += 1
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            await send_json(send, 401, _status(401, "Unauthorized"))
        elif (answer := self.interfere(method, path)) is not None:
            await send_json(send, *answer)
        elif "watch" in query and self.watches_hang:
            await receive()  # until the client goes
        elif "watch" in query:
            await self._serve_watch(path.rpartition("/")[2], query, send)
        elif path.endswith("/log"):
            await self._serve_log(path.split("/")[-2], query, send)
        else:
            await self._serve_objects(method, path, query, json.loads(body) if body else {}, send)

    async def _serve_objects(self, method: str, path: str, query: Json, body: Json, send: Any) -> None:
        answer = self._answer(method, path, query, body)
        if self.lose_answer_of == method:
            self.lose_answer_of = ""
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
            raise ConnectionError("the answer is lost")
        await send_json(send, *answer)

    def _answer(self, method: str, path: str, query: Json, body: Json) -> tuple[int, Json]:
        parts = path.split("/")
        if parts[-1] == "events":
            return 200, {"items": self.warnings.get(query["fieldSelector"].removeprefix("involvedObject.uid="), [])}
        kind = "jobs" if "jobs" in parts else "pods"
        name = "" if parts[-1] == kind else parts[-1]
        if method == "POST":
            return self._create(body)
        if not name:
            return self._list(kind, query)
        if name not in self.objects[kind]:
            return 404, _status(404, f'{kind} "{name}" not found', "NotFound")
        return self._delete_job(name, body) if method == "DELETE" else (200, self.objects[kind][name])

    def _create(self, body: Json) -> tuple[int, Json]:
        name = body["metadata"]["name"]
        if name in self.objects["jobs"]:
            return 409, _status(409, f'jobs.batch "{name}" already exists', "AlreadyExists")
        self.bodies.append(body)
        item = copy.deepcopy(body)
        item["metadata"] |= {"uid": f"uid-{self.version}", "creationTimestamp": TIME}
        self._store("jobs", item)
        return 201, self.objects["jobs"][name]

    def _delete_job(self, name: str, options: Json) -> tuple[int, Json]:
        metadata = self.objects["jobs"][name]["metadata"]
        wanted = options.get("preconditions") or {}
        if any(metadata[key] != value for key, value in wanted.items()):
            return 409, _status(409, "the precondition failed", "Conflict")
        self.delete("jobs", name)
        for pod in [pod for pod in self.objects["pods"].values() if pod["metadata"]["labels"]["job-name"] == name]:
            if options.get("propagationPolicy") == "Background":
                self.mark_deleting(pod["metadata"]["name"])
        return 200, _status(200, "")

    def _list(self, kind: str, query: Json) -> tuple[int, Json]:
        found = sorted(self._selected(self.objects[kind].values(), query), key=lambda one: one["metadata"]["name"])
        first = int(query.get("continue") or 0)
        last = first + int(query.get("limit") or len(found) + 1)
        metadata = {"resourceVersion": str(self.version), "continue": str(last) if last < len(found) else ""}
        return 200, {"kind": "List", "metadata": metadata, "items": found[first:last]}

    def _selected(self, items: Iterable[Json], query: Json) -> list[Json]:
        wanted = dict(part.split("=") for part in query.get("labelSelector", "").split(",") if part)
        node = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
        on_node = [item for item in items if not node or item["spec"].get("nodeName") == node]
        return [one for one in on_node if wanted.items() <= one["metadata"].get("labels", {}).items()]

    async def _serve_watch(self, kind: str, query: Json, send: Any) -> None:
        self._watchers.add(task := asyncio.current_task())  # type: ignore[arg-type]
        try:
            await _stream(send, self._watch_lines(kind, query))
        except asyncio.CancelledError:
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._watchers.discard(task)

    async def _watch_lines(self, kind: str, query: Json) -> AsyncIterator[bytes]:
        seen = int(query["resourceVersion"])
        while True:
            self._changed.clear()
            if seen < self.oldest:
                yield _line("ERROR", _status(410, "too old resource version", "Expired"))
                return
            for version, type_, of, item in list(self.events):
                if version > seen and of == kind and self._selected([item], query):
                    yield _line(type_, item)
                seen = max(seen, version)
            yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(max(seen, self.oldest))}})
            await self._changed.wait()

    async def _serve_log(self, pod: str, query: Json, send: Any) -> None:
        if pod not in self.objects["pods"]:
            await send_json(send, 404, _status(404, f'pods "{pod}" not found', "NotFound"))
        elif "containerStatuses" not in self.objects["pods"][pod]["status"]:
            await send_json(send, 400, _status(400, 'container "task" is waiting to start', "BadRequest"))
        else:
            await _stream(send, self._log_lines(self.logs[pod], query))

    async def _log_lines(self, log: Log, query: Json) -> AsyncIterator[bytes]:
        """As the kubelet does: `sinceTime` is cut to whole seconds."""
        since, cut = query.get("sinceTime", "")[:19], self.cut_log_after
        self.cut_log_after = None
        given = max(0, len(log.lines) - int(query["tailLines"])) if "tailLines" in query else 0
        while True:
            self._changed.clear()
            while given < len(log.lines):
                time, text = log.lines[given]
                given += 1
                data = f"{time} {text}".encode() if time[:19] >= since else b""
                if cut is not None and len(data) > cut:
                    yield data[:cut]
                    raise ConnectionError("the stream breaks")
                cut = cut - len(data) if cut is not None else None
                yield data
            if log.ended or query.get("follow") != "true":
                return
            await self._changed.wait()

    def _store(self, kind: str, item: Json, key: str = "") -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        name = key or item["metadata"]["name"]
        type_ = "MODIFIED" if name in self.objects[kind] else "ADDED"
        self.objects[kind][name] = item
        self._event(type_, kind, item)

    def _event(self, type_: str, kind: str, item: Json) -> None:
        self.events.append((self.version, type_, kind, copy.deepcopy(item)))
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _line(type_: str, item: Json) -> bytes:
    return json.dumps({"type": type_, "object": item}).encode() + b"\n"


def _status(code: int, message: str, reason: str = "") -> Json:
    return {"kind": "Status", "code": code, "message": message, "reason": reason}


async def body_of(receive: Any) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


async def send_json(send: Any, status: int, value: Json) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


async def _stream(send: Any, parts: AsyncIterator[bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    async for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
