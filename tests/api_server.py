"""A server of routes without a network, for tests of components that contribute routes."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from otel_zernel.component import ComponentConfig
from otel_zernel.testing import make_context
from otel_zernel_libraries.serving.api.dispatch import Dispatcher
from otel_zernel_libraries.serving.api.routes import Route
from otel_zernel_libraries.serving.api.server import ApiServer


@dataclass(frozen=True, slots=True)
class FakeAnswer:
    """An answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class FakeApiServer(ApiServer):
    """Serves routes as the `api` extension does, without its checks. `app` is an ASGI application.

    `make_context(extensions={"api": FakeApiServer()})` gives a component its API.
    """

    def __init__(self) -> None:
        super().__init__(ComponentConfig(), make_context("extensions", "api"))
        self.app = Dispatcher()

    def serve(self, owner: str, routes: Iterable[Route]) -> AbstractContextManager[None]:
        return self.app.having(owner, routes)

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> FakeAnswer:
        return await self.request("GET", url, headers=headers)

    async def request(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> FakeAnswer:
        """The whole answer to a request. The answer must have an end."""
        connection = FakeConnection()
        connection.from_client.put_nowait({"type": "http.request", "body": body, "more_body": False})
        await self.app(_scope("http", url, headers, method=method), connection.receive, connection.send)
        return connection.answer()

    @asynccontextmanager
    async def stream(self, url: str, headers: Mapping[str, str] | None = None) -> AsyncIterator["FakeConnection"]:
        """An answer that is read part by part: `await connection.start()`, then `await connection.part()`.

        The client disconnects at the exit.
        """
        connection = FakeConnection()
        connection.from_client.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        async with _running(self.app, _scope("http", url, headers, method="GET"), connection, "http.disconnect"):
            yield connection

    @asynccontextmanager
    async def websocket(self, url: str, headers: Mapping[str, str] | None = None) -> AsyncIterator["FakeConnection"]:
        """A WebSocket. `await connection.next()` is `websocket.accept` first. The client disconnects at the exit."""
        connection = FakeConnection()
        connection.from_client.put_nowait({"type": "websocket.connect"})
        scope = _scope("websocket", url, headers, subprotocols=[], extensions={"websocket.http.response": {}})
        async with _running(self.app, scope, connection, "websocket.disconnect"):
            yield connection


class FakeConnection:
    """The two directions of one request, as events of ASGI."""

    def __init__(self) -> None:
        self.from_client: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.from_server: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def receive(self) -> dict[str, Any]:
        return await self.from_client.get()

    async def send(self, message: dict[str, Any]) -> None:
        self.from_server.put_nowait(message)

    async def next(self, within: float = 10) -> dict[str, Any]:
        """The next event of the server. Raises `TimeoutError` after `within` s."""
        async with asyncio.timeout(within):
            return await self.from_server.get()

    async def start(self) -> tuple[int, Mapping[str, str]]:
        """The status and the headers of an answer."""
        message = await self.next()
        return message["status"], _text(message["headers"])

    async def part(self) -> bytes:
        """The next part of the body. Empty at its end."""
        body: bytes = (await self.next()).get("body", b"")
        return body

    def say(self, text: str) -> None:
        """Sends a text message of a WebSocket."""
        self.from_client.put_nowait({"type": "websocket.receive", "text": text})

    def answer(self) -> FakeAnswer:
        """The answer that has been sent."""
        start, *parts = [self.from_server.get_nowait() for _ in range(self.from_server.qsize())]
        return FakeAnswer(start["status"], _text(start["headers"]), b"".join(part.get("body", b"") for part in parts))


@asynccontextmanager
async def _running(app: Any, scope: Any, connection: FakeConnection, farewell: str) -> AsyncIterator[None]:
    task = asyncio.create_task(app(scope, connection.receive, connection.send))
    try:
        yield
    finally:
        connection.from_client.put_nowait({"type": farewell, "code": 1005})
        async with asyncio.timeout(10):
            await task


def _scope(type_: str, url: str, headers: Mapping[str, str] | None, **more: Any) -> dict[str, Any]:
    path, _, query = url.partition("?")
    return {
        "type": type_,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http" if type_ == "http" else "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 9095),
        **more,
    }


def _text(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers}
