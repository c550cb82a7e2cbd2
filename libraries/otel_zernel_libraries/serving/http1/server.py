"""The HTTP/1.1 server of an ASGI application. uvicorn is imported when the first client connects."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from otel_zernel.runtime.tasks import cancel
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.misdirected import Misdirected, watched
from otel_zernel_libraries.serving.server import Server

if TYPE_CHECKING:
    from otel_zernel_libraries.serving.http1.connection import Connection, HttpProtocol
    from otel_zernel_libraries.serving.websocket import WebSocketConnection

_SWEEP: Final = 0.25
"""Seconds between two checks of the connections' deadlines."""
_GRACE: Final = 1.0
"""Seconds in which running requests may finish when the server ends."""
_FILES: Final = 0.25
"""The share of the process's open files that connections may take."""
_logger = logging.getLogger("otel_zernel_libraries.serving")


class HttpServer(Server):
    """Serves an ASGI application."""

    name = "http"

    def __init__(
        self,
        app: Any,
        limits: ServerLimits,
        tls: Callable[[], ssl.SSLContext] | None,
        misdirected: Misdirected,
    ) -> None:
        super().__init__(
            _logger,
            tls,
            misdirected,
            connections=limits.connections,
            files=_FILES,
            handshake_time=limits.head_time,
        )
        self._app = watched(app, misdirected)
        self._limits = limits
        self._protocol: HttpProtocol | None = None
        """Exists from the first connection on."""
        self._loading = asyncio.Lock()
        self._idle: dict[Connection, None] = {}

    @property
    def connections(self) -> "Collection[Connection | WebSocketConnection]":
        if not self._protocol:
            return ()
        return self._protocol.state.connections  # type: ignore[return-value]  # `Connection` makes no other class

    def _can_refuse(self, count: int) -> bool:
        return not self._tls and count < 2 * self._most  # without a handshake there is no way to say why

    async def _factory(
        self, client: socket.socket, peer: Any, opened: Callable[[], None], *, surplus: bool
    ) -> "Callable[[], Connection]":
        if self._limits.send_buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.send_buffer)
        protocol = self._protocol or await self._load_protocol()

        def spoke(first: bytes) -> None:
            self._misdirected.spoke(first, peer)

        return lambda: protocol.connection(self._idle, opened, spoke, surplus=surplus)

    async def _load_protocol(self) -> "HttpProtocol":
        """The protocol of all connections. Several of them may need it at the same time."""
        async with self._loading:
            if not self._protocol:
                self._protocol = await asyncio.to_thread(_protocol, self._app, self._limits)
        return self._protocol

    def _forget_idle(self) -> "Connection | None":
        idle = next(iter(self._idle), None)
        if idle and self._protocol:
            self._protocol.state.connections.discard(idle)
        return idle

    async def _sweep(self) -> None:
        loop, date = asyncio.get_running_loop(), 0
        while True:
            if self._protocol and date != (date := int(time.time())):
                self._protocol.set_date(date)
            now = loop.time()
            for connection in list(self.connections):
                connection.check(now)
            await asyncio.sleep(_SWEEP)

    async def _end(self) -> None:
        for connection in list(self.connections):
            connection.shutdown()
        await self._until_closed(_GRACE, 0.01)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)  # the requests of the aborted connections learn of it
        if self._protocol:
            await cancel(*self._protocol.state.tasks)


def _protocol(app: Any, limits: ServerLimits) -> "HttpProtocol":
    """Runs in a thread, because the import blocks for 40 ms."""
    from otel_zernel_libraries.serving.http1.connection import HttpProtocol

    protocol = HttpProtocol(app, limits)
    protocol.set_date(int(time.time()))
    return protocol
