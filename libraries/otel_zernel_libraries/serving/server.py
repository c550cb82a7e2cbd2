"""An HTTP server: accepts connections, bounds their number, and ends them at its own end.

uvicorn is imported when the first client connects.
"""

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from otel_zernel_libraries.serving.limits import ServerLimits, closing
from otel_zernel_libraries.serving.misdirected import Misdirected, watched

if TYPE_CHECKING:
    from otel_zernel_libraries.serving.http1.connection import Connection
    from otel_zernel_libraries.serving.http1.protocol import HttpProtocol
    from otel_zernel_libraries.serving.websocket import WebSocketConnection

_SWEEP: Final = 0.25
"""Seconds between two checks of the connections' deadlines."""
_GRACE: Final = 1.0
"""Seconds in which running requests may finish when the server ends."""
_OUT_OF_FILES: Final = 0.1
"""Seconds until the next attempt if the system has no file descriptor for a new connection."""
_logger = logging.getLogger("otel_zernel_libraries.serving")


class HttpServer:
    """Serves an ASGI application on listening sockets while it is entered."""

    def __init__(
        self,
        app: Any,
        listeners: Sequence[socket.socket],
        limits: ServerLimits,
        context: Callable[[], ssl.SSLContext] | None,
        misdirected: Misdirected,
    ) -> None:
        self._app = watched(app, misdirected)
        self._misdirected = misdirected
        self._listeners = listeners
        self._limits = limits
        self._context = context
        """Returns the TLS context for the next connection. None serves without TLS."""
        self._most = min(limits.connections, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self._protocol: HttpProtocol | None = None
        """Exists from the first connection on."""
        self._loading = asyncio.Lock()
        self._idle: dict[Connection, None] = {}
        self._opening: dict[asyncio.Task[None], None] = {}
        """The connections whose TLS handshake is not finished, the oldest first."""
        self._refusing: dict[asyncio.Task[None], None] = {}
        """The connections that will hear 503. They take no place of another one, so none takes theirs."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def connections(self) -> "set[Connection | WebSocketConnection]":
        """The open connections."""
        if not self._protocol:
            return set()
        return self._protocol.state.connections  # type: ignore[return-value]  # `_open` and `_hand_over` create no other class

    async def __aenter__(self) -> "HttpServer":
        works = [*map(self._accept, self._listeners), self._sweep()]
        self._tasks = [asyncio.create_task(work, name="http server") for work in works]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Lets running requests finish within a second, then closes every connection."""
        await _cancel(*self._tasks, *self._opening, *self._refusing)
        for connection in list(self.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                while self.connections:  # noqa: ASYNC110  # uvicorn has no event for the end of a connection
                    await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)  # the requests of the aborted connections learn of it
        if self._protocol:
            await _cancel(*self._protocol.state.tasks)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, peer = await loop.sock_accept(listener)
            except OSError as error:
                _logger.warning("Cannot accept a connection; trying again: %s", error.strerror)
                self._make_room()
                await asyncio.sleep(_OUT_OF_FILES)
                continue
            protocol = self._protocol or await self._load_protocol(client)
            count = len(self.connections) + len(self._opening) + len(self._refusing)
            surplus = count >= self._most and not self._make_room()
            if surplus and (self._context or count >= 2 * self._most):
                client.close()  # without a handshake there is no way to say why
                continue
            if count >= self._most:
                await closing(client)
            opening = asyncio.create_task(self._open(protocol, client, peer, surplus), name="http connection")
            (self._refusing if surplus else self._opening)[opening] = None
            opening.add_done_callback(partial(self._ended, client))

    async def _load_protocol(self, client: socket.socket) -> "HttpProtocol":
        """The protocol of all connections. Several listeners may need it at the same time."""
        try:
            async with self._loading:
                if not self._protocol:
                    self._protocol = await asyncio.to_thread(_protocol, self._app, self._limits)
                return self._protocol
        except asyncio.CancelledError:
            client.close()
            raise

    async def _open(self, protocol: "HttpProtocol", client: socket.socket, peer: Any, surplus: bool) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def opened() -> None:
            self._end_opening(task)

        def spoke(first: bytes) -> None:
            self._misdirected.spoke(first, peer)

        def make() -> "Connection":
            return protocol.connection(self._idle, opened, spoke, surplus=surplus)

        if self._limits.send_buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.send_buffer)
        tls: dict[str, Any] = {}
        if self._context:
            tls = {"ssl": self._context(), "ssl_handshake_timeout": self._limits.head_time, "ssl_shutdown_timeout": 1.0}
        try:
            await loop.connect_accepted_socket(make, client, **tls)
        except OSError as error:  # also ssl.SSLError and TimeoutError
            _logger.debug("A connection failed before its first request: %s", error)
            self._misdirected.failed_handshake(error, peer)

    def _ended(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step never runs, so its socket is closed here."""
        self._end_opening(task)
        if task.cancelled():
            client.close()

    def _end_opening(self, task: asyncio.Task[None] | None) -> None:
        if task:
            self._opening.pop(task, None)
            self._refusing.pop(task, None)

    def _make_room(self) -> bool:
        """Closes the connection that is idle longest, or that has not finished its handshake longest.

        It is forgotten at once: the next connection of a burst must not choose it again.
        """
        if victim := next(iter(self._idle), None):
            self.connections.discard(victim)
            victim.abort()
        elif opening := next(iter(self._opening), None):
            self._end_opening(opening)
            opening.cancel()
        else:
            return False
        return True

    async def _sweep(self) -> None:
        loop, date = asyncio.get_running_loop(), 0
        while True:
            if self._protocol and date != (date := int(time.time())):
                self._protocol.set_date(date)
            now = loop.time()
            for connection in list(self.connections):
                connection.check(now)
            await asyncio.sleep(_SWEEP)


def _protocol(app: Any, limits: ServerLimits) -> "HttpProtocol":
    """Runs in a thread, because the import blocks for 40 ms."""
    from otel_zernel_libraries.serving.http1.protocol import HttpProtocol

    protocol = HttpProtocol(app, limits)
    protocol.set_date(int(time.time()))
    return protocol


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
