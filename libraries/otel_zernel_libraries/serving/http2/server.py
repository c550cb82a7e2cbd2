"""The HTTP/2 server of gRPC."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection
from typing import Any, Final

from otel_zernel.component import Logger
from otel_zernel_libraries.serving.http2.connection import Http2Connection
from otel_zernel_libraries.serving.http2.streams import ServerParts
from otel_zernel_libraries.serving.misdirected import Misdirected
from otel_zernel_libraries.serving.server import Server

_SWEEP: Final = 0.25
"""Seconds between two checks of the connections' deadlines."""
_SWEPT_AT_ONCE: Final = 100
_PAUSE: Final = 0.01
"""10,000 connections at once would hold the event loop for 30 ms. So they take a second, in pieces of 0.3 ms."""
GRACE: Final = 0.8
"""Seconds in which calls may finish at the end. A receiver ends within 1 s."""
_LAST_WORDS: Final = 0.1
"""Seconds in which the last answers are sent."""


class Http2Server(Server):
    """Serves the methods of gRPC."""

    name = "http2"

    def __init__(
        self,
        parts: ServerParts,
        logger: Logger,
        tls: Callable[[], ssl.SSLContext] | None,
        misdirected: Misdirected | None = None,
    ) -> None:
        super().__init__(
            logger,
            (lambda: _for_http2(tls())) if tls else None,
            misdirected or Misdirected("http2", "grpc"),
            connections=parts.limits.connections,
            files=parts.limits.files,
            handshake_time=parts.limits.head_time,
        )
        self._parts = parts
        self._connections: set[Http2Connection] = set()

    @property
    def connections(self) -> Collection[Http2Connection]:
        return self._connections

    async def _factory(
        self, client: socket.socket, peer: Any, opened: Callable[[], None], *, surplus: bool
    ) -> Callable[[], Http2Connection]:
        if client.family != socket.AF_UNIX:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def began(connection: Http2Connection) -> None:
            opened()
            self._connections.add(connection)

        def mistook(protocol: str) -> None:
            self._misdirected.mistook(protocol, peer)

        return lambda: Http2Connection(self._parts, began, self._connections.discard, mistook)

    def _forget_idle(self) -> Http2Connection | None:
        spare = (connection for connection in self._connections if connection.is_spare)
        idle = min(spare, key=lambda connection: connection.idle_since, default=None)
        if idle:
            self._connections.discard(idle)
        return idle

    async def _sweep(self) -> None:
        swept = self._parts.now()
        while True:
            await asyncio.sleep(_SWEEP)
            now = self._parts.now()
            elapsed, swept = now - swept, now
            for number, connection in enumerate(list(self._connections), 1):
                connection.sweep(now, elapsed)
                if number % _SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(_PAUSE)

    async def _end(self) -> None:
        """Lets running calls finish, refuses the rest, and closes every connection."""
        for connection in list(self._connections):
            connection.go_away()
        await self._until_closed(GRACE, 0.005)
        for connection in list(self._connections):
            connection.refuse_all()
        await self._until_closed(_LAST_WORDS, 0.005)
        for connection in list(self._connections):
            connection.abort()


def _for_http2(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_alpn_protocols(["h2"])
    return context
