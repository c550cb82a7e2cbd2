"""The HTTP/1.1 protocol of one server: uvicorn's configuration and state, which its connections share.

uvicorn takes 10 MB of memory and 40 ms, so a server imports this module when the first client connects.
"""

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from otel_zernel_libraries.serving.http1.connection import Connection
from otel_zernel_libraries.serving.limits import ServerLimits

if TYPE_CHECKING:
    from otel_zernel_libraries.serving.websocket import WebSocketConnection


class HttpProtocol:
    """Creates the connections to an ASGI application."""

    def __init__(self, app: Any, limits: ServerLimits) -> None:
        self._config = Config(app, http=Connection, interface="asgi3", ws="none", lifespan="off", log_config=None)
        self._config.access_log = False
        self._config.proxy_headers = False  # the client is the peer of the connection, whatever its headers say
        self._config.timeout_keep_alive = limits.idle_time  # type: ignore[assignment]  # a delay of `call_later`
        self._config.load()
        self._limits = limits
        self.state = ServerState()
        self._websockets: Callable[[], WebSocketConnection] | None = None
        """Makes a WebSocket. Exists from the first one on."""

    def connection(
        self,
        idle: dict[Connection, None],
        opened: Callable[[], None],
        spoke: Callable[[bytes], None],
        *,
        surplus: bool,
    ) -> Connection:
        """A new connection, see `Connection`."""
        upgrade = self._websocket if self._limits.message_size else None
        return Connection(self._config, self.state, self._limits, idle, opened, spoke, upgrade, surplus=surplus)

    async def _websocket(self) -> "WebSocketConnection":
        """A new WebSocket. The first one imports the package websockets, which would block for 20 ms."""
        if not self._websockets:
            self._websockets = await asyncio.to_thread(_factory, self._config, self.state, self._limits)
        return self._websockets()

    def set_date(self, seconds: int) -> None:
        """Sets the date header of the next answers, in seconds since 1970."""
        self.state.default_headers = [(b"date", formatdate(seconds, usegmt=True).encode())]


def _factory(config: Config, state: ServerState, limits: ServerLimits) -> "Callable[[], WebSocketConnection]":
    from otel_zernel_libraries.serving.websocket import new_factory

    return new_factory(config, state, limits)
