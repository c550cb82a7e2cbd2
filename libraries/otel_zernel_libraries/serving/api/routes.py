"""The routes of the API: a path, an ASGI application, and their description for OpenAPI."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

App = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI 3 application: `app(scope, receive, send)`."""

_SEGMENT: Final = re.compile(r"[^/{}]*|\{[a-z_][a-z0-9_]*\}")
_REST: Final = re.compile(r"\{[a-z_][a-z0-9_]*:path\}")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a route, for OpenAPI. The application checks its value."""

    name: str
    place: Literal["path", "query"]
    description: str
    schema: Mapping[str, Any]
    """JSON Schema: `{"type": "string"}`."""
    style: str | None = None
    """The style of OpenAPI: `deepObject` for `name[key]=value`."""


@dataclass(frozen=True, slots=True)
class Route:
    """One path of the API. Raises `ValueError` if `path` is not well formed."""

    path: str
    """`/api/workers/{id}`. `{name}` matches one segment that is not empty; `{name:path}`, at the end, the rest.

    A literal segment precedes a parameter. An encoded slash (`%2F`) belongs to its segment.
    """
    app: App
    """`scope["path_params"]` has the decoded parameters by name; `scope["type"]` is `http` or `websocket`."""
    methods: tuple[str, ...] = ("GET",)
    """HEAD is served by GET. Without meaning for `websocket`."""
    kind: Literal["http", "websocket"] = "http"
    summary: str = ""
    """One sentence, for OpenAPI."""
    parameters: tuple[Parameter, ...] = ()
    """Parameters of the path that are missing here are described as strings."""
    body: Mapping[str, Any] | None = None
    """JSON Schema of the request's body."""
    answer: Mapping[str, Any] | None = None
    """JSON Schema of the answer with status 200."""
    content_type: str = "application/json"
    """The media type of the answer."""
    other_types: tuple[str, ...] = ()
    """Media types that a client may choose instead, for OpenAPI."""
    has_problems: bool = False
    """Whether its own errors are problems of RFC 9457, for OpenAPI. Else they are `{"error": sentence}`."""
    needs_token: bool = False
    """Refuse other machines and other users with 403 unless the server has `auth`: for routes that start programs."""
    listed: bool = True
    """Whether OpenAPI has it."""

    def __post_init__(self) -> None:
        segments = self.path.split("/")
        fits = [_SEGMENT.fullmatch(segment) for segment in segments[:-1]]
        last = _SEGMENT.fullmatch(segments[-1]) or _REST.fullmatch(segments[-1])
        if segments[0] or len(segments) < 2 or not all(fits) or not last:
            raise ValueError(f"not a path of a route: {self.path!r}")

    @property
    def shape(self) -> str:
        """The path without the names of its parameters. Routes with the same shape match the same requests."""
        return re.sub(r"\{[a-z0-9_]+(:path)?\}", r"{\1}", self.path)
