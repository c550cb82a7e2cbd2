"""All routes that are served, and the one that matches a request."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import unquote, unquote_to_bytes

from otel_zernel.errors import CannotStart
from otel_zernel_libraries.serving.api.routes import Route

_PARAMETER: Final = re.compile(r"\{([a-z0-9_]+)(:path)?\}")
_SUSPICIOUS: Final = re.compile(rb"[%\\\0]|(?:^|/)\.")
"""Every unsafe path has one of these. Few others do, so most need not be decoded."""


@dataclass(frozen=True, slots=True)
class Match:
    """The routes at a path."""

    route: Route | None
    """The route that answers. None if those at the path have other methods, or another kind."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    """The path of the routes, with placeholders. Empty if there is none."""
    methods: tuple[str, ...] = ()
    """The methods of HTTP at the path."""
    has_websocket: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    """The routes of one owner with one shape."""

    owner: str
    pattern: re.Pattern[bytes]
    order: tuple[int, ...]
    """0 for a literal segment, 1 for a parameter, 2 for the rest. The lowest one that matches answers."""
    routes: list[Route]


class RouteTable:
    """Routes by owner."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        """By shape."""
        self._ordered: list[_Entry] = []

    @property
    def routes(self) -> Iterator[Route]:
        """All routes, the most specific paths first."""
        return (route for entry in self._ordered for route in entry.routes)

    @classmethod
    def of(cls, routes: Iterable[Route]) -> Self:
        """A table that has these routes for ever."""
        table = cls()
        for route in routes:
            table._add("", route)
        return table

    @contextmanager
    def having(self, owner: str, routes: Iterable[Route]) -> Iterator[None]:
        """Has the routes while it is entered. Raises `CannotStart` if another owner has one of the paths."""
        added = [*routes]
        for route in added:
            entry = self._entries.get(route.shape)
            if entry and entry.owner != owner:
                raise CannotStart(
                    f"{owner}: {entry.owner} already serves {route.path} on this API; remove one of the two, "
                    "or give it an api extension of its own"
                )
        try:
            for route in added:
                self._add(owner, route)
            yield
        finally:
            for route in added:
                self._remove(route)

    def match(self, kind: str, method: str, raw_path: bytes) -> Match:
        """The route for a request. `kind` is `http` or `websocket`; `raw_path` is encoded and without the query."""
        if _is_unsafe(raw_path):
            return Match(None)
        for entry in self._ordered:
            if path_match := entry.pattern.fullmatch(raw_path):
                return _match(entry, kind, "GET" if method == "HEAD" else method, path_match)
        return Match(None)

    def _add(self, owner: str, route: Route) -> None:
        entry = self._entries.get(route.shape)
        if not entry:
            entry = self._entries[route.shape] = _Entry(owner, _pattern(route.path), _order(route.path), [])
            self._ordered = sorted(self._entries.values(), key=lambda entry: entry.order)
        for known in entry.routes:
            if known.kind == route.kind and (route.kind == "websocket" or {*known.methods} & {*route.methods}):
                raise ValueError(f"{owner} has {route.path} twice")
        entry.routes.append(route)

    def _remove(self, route: Route) -> None:
        entry = self._entries.get(route.shape)
        if not entry or not any(known is route for known in entry.routes):
            return
        entry.routes[:] = [known for known in entry.routes if known is not route]
        if not entry.routes:
            del self._entries[route.shape]
            self._ordered.remove(entry)


def _match(entry: _Entry, kind: str, method: str, path_match: re.Match[bytes]) -> Match:
    routes = [
        route for route in entry.routes if route.kind == kind and (kind == "websocket" or method in route.methods)
    ]
    methods = tuple(dict.fromkeys(name for route in entry.routes if route.kind == "http" for name in route.methods))
    has_websocket = any(route.kind == "websocket" for route in entry.routes)
    if not routes:
        return Match(None, path=entry.routes[0].path, methods=methods, has_websocket=has_websocket)
    (route,) = routes
    names = (name for name, _ in _PARAMETER.findall(route.path))
    values = (unquote_to_bytes(value).decode("utf-8", "replace") for value in path_match.groups())
    return Match(route, dict(zip(names, values, strict=True)), route.path, methods, has_websocket)


def _pattern(path: str) -> re.Pattern[bytes]:
    parts, end = [], 0
    for parameter in _PARAMETER.finditer(path):
        parts += [re.escape(path[end : parameter.start()]), "(.+)" if parameter[2] else "([^/]+)"]
        end = parameter.end()
    return re.compile("".join([*parts, re.escape(path[end:])]).encode(), re.DOTALL)


def _order(path: str) -> tuple[int, ...]:
    return tuple(2 if part.endswith(":path}") else 1 if part.startswith("{") else 0 for part in path.split("/"))


def _is_unsafe(raw_path: bytes) -> bool:
    """Whether a segment could lead to another folder, or holds a NUL. An application may use the path for files."""
    if not _SUSPICIOUS.search(raw_path):
        return False
    decoded = unquote(raw_path.decode("latin-1"), "latin-1")
    return "\0" in decoded or any(part in (".", "..") for part in re.split(r"[/\\]", decoded))


def path_parameters(path: str) -> list[str]:
    """The names of the parameters in the path of a route."""
    return [name for name, _ in _PARAMETER.findall(path)]


def raw_path_of(scope: Mapping[str, Any]) -> bytes:
    """The encoded path of a request, without the query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    return raw.partition(b"?")[0]
