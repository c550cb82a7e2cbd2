"""The objects of one kind that a selector selects, kept up to date by a watch of Kubernetes' API."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from otel_zernel.clock import Clock
from otel_zernel.errors import NoAnswer
from otel_zernel.text import printable
from otel_zernel_libraries.clients.json_client import Json, JsonAnswer, JsonClient

_WATCH: Final = 290
"""Seconds until the server ends a watch: below the 5 min that many load balancers allow."""
_SILENCE: Final = 320.0
"""Seconds without an event or a bookmark until the connection is given up."""
_PAGE: Final = "50"
"""Objects in one answer: parsing more would hold the event loop for over 10 ms."""
_SHORTEST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 30.0
Selection = Mapping[str, str]
_LONGEST_EVENT: Final = 8 << 20
"""Bytes. An object in Kubernetes has at most 1.5 MiB (etcd)."""


class _Expired(Exception):
    """The server has no events since the version from which the watch should go on (410)."""


class Collection:
    """Lists the objects once, and then follows their changes. `changed(name, item)` gets None for a deleted one."""

    def __init__(
        self,
        client: JsonClient,
        path: str,
        selection: Selection,
        changed: Callable[[str, Json | None], None],
        clock: Clock,
        key: Literal["name", "uid"] = "name",
        report: Callable[[str | None], None] = lambda problem: None,
    ) -> None:
        """`selection` are the parameters that select the objects, such as `labelSelector`.

        `key` is the field of `metadata` that identifies an object. A name is unique in its namespace only.
        `report` gets the problem after each attempt.
        """
        self._client = client
        self._path = path
        self._selection = selection
        self._key = key
        self._changed = changed
        self._report = report
        self._clock = clock
        self._version = ""
        self._items: dict[str, str] = {}
        """The version of each known object, by its key."""
        self._alive = False
        """Whether the watch has brought anything since it was connected."""
        self.listed = asyncio.Event()
        """Set when the first list has arrived."""
        self.problem: str | None = f"the list of {path.rpartition('/')[2]} has not arrived yet"
        """Why the objects may be outdated. None while the watch runs."""

    async def run(self) -> None:
        """Runs until it is cancelled."""
        wait = _SHORTEST_WAIT
        while True:
            self._alive, began = False, self._clock.monotonic()
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except _Expired:
                # A second try with the same version would fail again.
                self._version = ""
            except NoAnswer as error:
                # Connections end every few minutes. It is a problem if the next one brings nothing either.
                self._found(None if self._alive else str(error))
            except (AttributeError, TypeError, ValueError, KeyError) as error:
                self._version = ""
                self._found(f"an object of Kubernetes has another layout than expected: {error!r}")
            if self._alive or self._clock.monotonic() > began + _LONGEST_WAIT:
                wait = _SHORTEST_WAIT
            await self._clock.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT)

    def put(self, item: Json) -> None:
        """Adds an object that this collector has just created or read, if the watch has not reported it yet."""
        metadata = item.get("metadata") or {}
        if (name := str(metadata.get(self._key))) not in self._items:
            self._items[name] = str(metadata.get("resourceVersion"))
            self._changed(name, item)

    def _found(self, problem: str | None) -> None:
        self.problem = problem
        self._report(problem)

    async def _list(self) -> None:
        items, version = await list_all(self._client, self._path, self._selection)
        listed = {str((item.get("metadata") or {}).get(self._key)): item for item in items}
        for name in [name for name in self._items if name not in listed]:
            self._forget(name)
        for name, item in listed.items():
            self._know(name, item)
        self._version = version
        self._found(None)
        self.listed.set()

    async def _watch(self) -> None:
        """Follows the changes until the server ends the watch."""
        params = {
            **self._selection,
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH),
        }
        async with self._client.stream(self._path, params, _SILENCE, begins_at_once=True) as stream:
            if stream.refusal:
                raise _error(stream.refusal, self._path)
            self._found(None)
            rest = b""
            async for piece in stream.pieces():
                *lines, rest = (rest + piece).split(b"\n")
                if len(rest) > _LONGEST_EVENT:
                    raise NoAnswer("an event of a watch is longer than 8 MiB")
                for line in filter(None, lines):
                    self._event(line)
                    self._alive = True

    def _event(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            kind, item = event["type"], event["object"]
            metadata = item.get("metadata") or {}
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise NoAnswer("an event of a watch is not JSON of Kubernetes") from error
        if kind == "ERROR":
            raise _error(JsonAnswer(int(item.get("code") or 500), item, ""), self._path)
        if kind == "DELETED":
            # The last state of a pod is in the event of its deletion: its exit code may be in no other event.
            self._changed(str(metadata.get(self._key)), item)
            self._forget(str(metadata.get(self._key)))
        elif kind in ("ADDED", "MODIFIED"):
            self._know(str(metadata.get(self._key)), item)
        self._version = str(metadata.get("resourceVersion") or self._version)

    def _know(self, name: str, item: Json) -> None:
        version = str((item.get("metadata") or {}).get("resourceVersion"))
        if self._items.get(name) != version:
            self._items[name] = version
            self._changed(name, item)

    def _forget(self, name: str) -> None:
        self._items.pop(name, None)
        self._changed(name, None)


async def list_all(client: JsonClient, path: str, selection: Selection) -> tuple[list[Json], str]:
    """All objects that are selected, and their common version. Raises `NoAnswer`."""
    items: list[Json] = []
    params = {**selection, "limit": _PAGE}
    while True:
        answer = await client.call("GET", path, params=params)
        if answer.status == 410 and "continue" in params:
            items, params = [], dict(selection)
            continue
        if not answer.ok:
            raise unavailable(answer, f"list {path}")
        if not isinstance(page := answer.body.get("items"), list):
            raise NoAnswer(f"the list of {path} is not an answer of Kubernetes")
        items += page
        metadata: Mapping[str, Any] = answer.body.get("metadata") or {}
        if not metadata.get("continue"):
            return items, str(metadata.get("resourceVersion") or "")
        params = {**params, "continue": str(metadata["continue"])}


def unavailable(answer: JsonAnswer, action: str) -> NoAnswer:
    """The error for an answer that is no success: the server's own sentence, and advice if access is missing."""
    message = printable(str(answer.body.get("message") or answer.text or "no message"))
    advice = {401: "; check the token", 403: "; grant the permissions that the README lists"}.get(answer.status, "")
    return NoAnswer(f"Kubernetes refused to {action}: {answer.status} {message}{advice}")


def _error(answer: JsonAnswer, path: str) -> Exception:
    return _Expired() if answer.status == 410 else unavailable(answer, f"watch {path}")
