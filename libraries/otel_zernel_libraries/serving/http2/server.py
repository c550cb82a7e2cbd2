"""Listens for HTTP/2: bounds the number of connections, and ends them at its own end."""

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from otel_zernel.component import Logger
from otel_zernel_libraries.serving.http2.connection import Http2Connection
from otel_zernel_libraries.serving.http2.parts import ServerParts
from otel_zernel_libraries.serving.limits import closing
from otel_zernel_libraries.serving.misdirected import Misdirected

_SWEEP: Final = 0.25
"""Seconds between two checks of the connections' deadlines."""
_SWEPT_AT_ONCE: Final = 100
_PAUSE: Final = 0.01
"""10,000 connections at once would hold the event loop for 30 ms. So they take a second, in pieces of 0.3 ms."""
GRACE: Final = 0.8
"""Seconds in which calls may finish at the end. A receiver ends within 1 s."""
_LAST_WORDS: Final = 0.1
"""Seconds in which the last answers are sent."""
_OUT_OF_FILES: Final = 0.1
"""Seconds until the next attempt if the system has no file descriptor for a new connection."""


class Http2Server:
    """Accepts connections on a listening socket while it is entered."""

    def __init__(
        self,
        parts: ServerParts,
        logger: Logger,
        tls: Callable[[], ssl.SSLContext] | None,
        misdirected: Misdirected | None = None,
    ) -> None:
        self._parts = parts
        limits = parts.limits
        self._logger = logger
        self._tls = tls
        self._misdirected = misdirected or Misdirected("http2", "grpc")
        self._most = min(limits.connections, max(1, int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * limits.files)))
        self._connections: set[Http2Connection] = set()
        self._opening: dict[asyncio.Task[None], None] = {}
        """The connections whose TLS handshake is not finished, the oldest first."""

    async def accept(self, listener: socket.socket) -> None:
        """Accepts connections until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, peer = await loop.sock_accept(listener)
            except OSError as error:
                self._logger.warning("Cannot accept a connection; trying again: %s", error.strerror)
                self._make_room()
                await asyncio.sleep(_OUT_OF_FILES)
                continue
            if len(self._connections) + len(self._opening) >= self._most:
                if not self._make_room():
                    client.close()
                    continue
                await closing(client)
            opening = asyncio.create_task(self._open(client, peer), name="http2 connection")
            self._opening[opening] = None
            opening.add_done_callback(partial(self._ended, client))

    async def sweep(self) -> None:
        """Ends what takes too long, until cancelled."""
        swept = self._parts.now()
        while True:
            await asyncio.sleep(_SWEEP)
            now = self._parts.now()
            elapsed, swept = now - swept, now
            for number, connection in enumerate(list(self._connections), 1):
                connection.sweep(now, elapsed)
                if number % _SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(_PAUSE)

    async def end(self) -> None:
        """Lets running calls finish, refuses the rest, and closes every connection."""
        for opening in list(self._opening):
            opening.cancel()
        for connection in list(self._connections):
            connection.go_away()
        await self._until_closed(GRACE)
        for connection in list(self._connections):
            connection.refuse_all()
        await self._until_closed(_LAST_WORDS)
        for connection in list(self._connections):
            connection.abort()

    async def _until_closed(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._connections:  # noqa: ASYNC110  # a connection ends in a callback of the transport
                    await asyncio.sleep(0.005)

    async def _open(self, client: socket.socket, peer: Any) -> None:
        if client.family != socket.AF_UNIX:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.current_task()

        def began(connection: Http2Connection) -> None:
            self._end_opening(task)
            self._connections.add(connection)

        def mistook(protocol: str) -> None:
            self._misdirected.mistook(protocol, peer)

        def make() -> Http2Connection:
            return Http2Connection(self._parts, began, self._connections.discard, mistook)

        tls: dict[str, Any] = {}
        if self._tls:
            context = self._tls()
            context.set_alpn_protocols(["h2"])
            tls = {"ssl": context, "ssl_handshake_timeout": self._parts.limits.head_time, "ssl_shutdown_timeout": 1.0}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(make, client, **tls)
        except OSError as error:  # also ssl.SSLError and TimeoutError
            self._logger.debug("A connection failed before its first request: %s", error)
            self._misdirected.failed_handshake(error, peer)

    def _ended(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step never runs, so its socket is closed here."""
        self._end_opening(task)
        if task.cancelled():
            client.close()

    def _end_opening(self, task: asyncio.Task[None] | None) -> None:
        if task:
            self._opening.pop(task, None)

    def _make_room(self) -> bool:
        """Closes the connection that is idle longest, or that has not finished its handshake longest.

        It is forgotten at once: the next connection of a burst must not choose it again.
        """
        spare = [connection for connection in self._connections if connection.is_spare]
        if spare:
            victim = min(spare, key=lambda connection: connection.idle_since)
            self._connections.discard(victim)
            victim.abort()
        elif opening := next(iter(self._opening), None):
            self._end_opening(opening)
            opening.cancel()
        else:
            return False
        return True


@asynccontextmanager
async def serve_http2(
    server: Http2Server, listeners: Sequence[socket.socket], stopping: Callable[[], None]
) -> AsyncIterator[None]:
    """Serves on listening sockets. At the end, `stopping` is called before the last answers."""
    works = [*map(server.accept, listeners), server.sweep()]
    tasks = [asyncio.create_task(work, name="http2 server") for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in listeners:
            listener.close()
        stopping()
        await server.end()
