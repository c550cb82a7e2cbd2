"""A running api extension, and small applications."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from opentelemetry.metrics import Meter

from otel_zernel.authentication import ServerAuthenticator, Unauthenticated
from otel_zernel.clock import Clock, SystemClock
from otel_zernel.component import ComponentConfig, Extension
from otel_zernel.testing import make_context
from otel_zernel_extensions.api import ApiExtension
from otel_zernel_extensions.api.config import ApiConfig
from otel_zernel_libraries.serving.api.answers import client_gone, json_answer, read_body
from otel_zernel_libraries.serving.api.routes import Route
from tests.libraries.serving.api.test_routes import echo


@asynccontextmanager
async def running(
    *,
    extensions: Mapping[str, Extension] | None = None,
    clock: Clock | None = None,
    meter: Meter | None = None,
    is_up: bool = True,
    **config: Any,
) -> AsyncIterator[ApiExtension]:
    """The extension with these options, on a free port. `is_up` says that every component of the collector runs."""
    parsed = ApiConfig.model_validate({"endpoint": "localhost:0", **config})
    context = make_context("extensions", "api", clock=clock or SystemClock(), extensions=extensions, meter=meter)
    if is_up:
        context.health.available(context.clock.time_ns())
    async with ApiExtension(parsed, context) as api:
        yield api


class Keeper(ServerAuthenticator):
    """Lets requests with one token in."""

    challenge = "Bearer"

    def __init__(self) -> None:
        super().__init__(ComponentConfig(), make_context("extensions", "keeper"))

    async def authenticate(self, headers: Mapping[str, str]) -> None:
        if headers.get("authorization") != "Bearer right":
            raise Unauthenticated("no valid token")


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await json_answer(send, {"hello": scope["path_params"].get("name", "world")})


async def length(scope: Any, receive: Any, send: Any) -> None:
    await json_answer(send, {"length": len(await read_body(receive, 100))})


async def stream(scope: Any, receive: Any, send: Any) -> None:
    """Sends one event, and waits until the client has gone."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send({"type": "http.response.body", "body": b"data: first\n\n", "more_body": True})
    await client_gone(receive)
    await send({"type": "http.response.body", "body": b"data: last\n\n", "more_body": False})


ROUTES = [
    Route("/api/hello", hello, summary="Greets the world."),
    Route("/api/hello/{name}", hello),
    Route("/api/tasks", length, methods=("POST",), body={"type": "object"}, needs_token=True),
    Route("/api/notes", length, methods=("POST", "DELETE", "PUT"), listed=False),
    Route("/api/stream", stream, content_type="text/event-stream"),
    Route("/api/ws", echo, kind="websocket"),
    Route("/hidden", hello, listed=False),
]
