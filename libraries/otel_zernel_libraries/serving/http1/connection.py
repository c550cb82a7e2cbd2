"""One HTTP/1.1 connection: uvicorn's protocol, with bounds on sizes and times.

uvicorn takes 10 MB of memory, so a server imports this module when the first client connects.
"""

import asyncio
import importlib.util
import logging
import math
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final, Literal

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.server import is_no_cancellation

if TYPE_CHECKING:
    from otel_zernel_libraries.serving.websocket import WebSocketConnection

_INTERIM: Final = b"HTTP/1.1 1"
"""How an interim answer begins (100 Continue). Its client waits for it, and no body follows."""
_JOINED: Final = 64 << 10
"""Bytes. A larger part of a body is written by itself, since to copy it would cost more than a system call."""


class HeadWithBody:
    """The transport of one answer. Its head waits for the first part of the body, within one turn of the event loop."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None
        self._has_head = False

    def write(self, data: bytes) -> None:
        """Keeps the head, and writes everything else."""
        if self._has_head or data.startswith(_INTERIM):
            self._write(data)
            return
        self._head = data
        self._has_head = True
        self._loop.call_soon(self._write, b"")  # if the application waits before it sends a body

    def _write(self, data: bytes) -> None:
        head, self._head = self._head, None
        if head is not None and not self._transport.is_closing():
            if len(data) <= _JOINED:
                data = head + data
            else:
                self._transport.write(head)
        if data:
            self._transport.write(data)

    def close(self) -> None:
        """Writes the head if it still waits, and closes."""
        self._write(b"")
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the transport closes or has closed."""
        return self._transport.is_closing()


_REASONS = {
    400: "not a valid HTTP/1.1 request",
    408: "the request took too long",
    431: "the request line and headers are too long",
    503: "too many connections; try again later",
}


_logger = logging.getLogger("otel_zernel_libraries.serving.http")
_logger.setLevel(logging.INFO)  # below, uvicorn describes every connection
_logger.addFilter(is_no_cancellation)


class HeadTooLong(Exception):
    """The request line and the headers exceed a limit. Ends the parsing."""


class PipelineTooLong(Exception):
    """Too many requests wait for their answers. Ends the parsing."""


class Connection(HttpToolsProtocol):
    """A connection that closes itself when its client exceeds a limit. The server calls `check` regularly."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: ServerLimits,
        idle: "dict[Connection, None]",
        opened: Callable[[], None],
        spoke: Callable[[bytes], None],
        upgrade: "Callable[[], Awaitable[WebSocketConnection]] | None",
        *,
        surplus: bool,
    ) -> None:
        super().__init__(config, state, {})
        self.logger = _logger
        self._limits = limits
        self._idle = idle
        """The connections of the server that may be closed without harm, the longest idle one first."""
        self._opened = opened
        """Called when the connection is made, after a TLS handshake."""
        self._spoke = spoke
        """Called with the first bytes if they are no HTTP/1.1."""
        self._upgrade = upgrade
        """Makes a WebSocket. None for a server without."""
        self._is_upgrading = False
        self._has_requests = False
        self._surplus = surplus
        """Whether the server has too many connections, so that this one only gets 503."""
        self._running: RequestResponseCycle | None = None
        """The request that the application answers. uvicorn knows only the one that it read last."""
        self._stage: Literal["idle", "head", "body", "read"] = "idle"
        self._deadline = math.inf
        self._write_deadline = math.inf
        self._close_deadline = math.inf
        self._unparsed = 0
        """Bytes since the parser last delivered the headers or a part of a body."""
        self._may_be_too_long = False
        """Whether the data at hand may hold a head that is too long."""
        self._discards = False
        """Whether the rest of the input is ignored, because the answer is final."""
        self._discarded = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._opened()
        if self._surplus:
            self._refuse(503)
            return
        self._deadline = self.loop.time() + self._limits.head_time
        self._idle[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle.pop(self, None)
        self._disconnect_requests()
        self._unset_keepalive_if_required()
        self._deadline = self._write_deadline = self._close_deadline = math.inf
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._discards:
            self._discard(len(data))
            return
        self._unset_keepalive_if_required()
        before = self._stage
        if before in ("idle", "read"):
            self._stage = "head"
        self._unparsed += len(data)
        self._may_be_too_long = self._unparsed > self._limits.head_size
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._is_upgrading:
                self.handle_websocket_upgrade(data[upgrade.args[0] :])
            return  # else the answer ignores the upgrade, as RFC 9110, 7.8 allows
        except httptools.HttpParserError as error:
            if not self._has_requests and not isinstance(error.__context__, HeadTooLong):
                self._spoke(data)
            self._refuse(431 if isinstance(error.__context__, HeadTooLong) else 400)
            return
        if self._unparsed > self._limits.head_size:
            self._refuse(431)
        elif self._stage != before:
            self._set_deadline()

    # Callbacks of the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= self._limits.headers:
            raise HeadTooLong
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._may_be_too_long and self._head_size() > self._limits.head_size:
            raise HeadTooLong
        if len(self.pipeline) >= self._limits.pipelined:
            raise PipelineTooLong
        super().on_headers_complete()
        self._unparsed = 0
        self._has_requests = True
        self._stage = "body"
        self._idle.pop(self, None)
        if self._is_upgrading:
            return
        self.cycle.transport = HeadWithBody(self.transport, self.loop)  # type: ignore[assignment]  # all that it uses
        if not self.pipeline:  # else the request waits there
            self._running = self.cycle
        if not self._limits.keep_alive:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._stage = "read"

    # The way to a WebSocket

    def _should_upgrade(self) -> bool:
        """Whether the request becomes a WebSocket. uvicorn asks several times for each request with an upgrade."""
        if self._upgrade is None or self._running is not None or self.pipeline:
            return False
        is_get = self.scope["method"] == "GET" and self.parser.get_http_version() == "1.1"
        self._is_upgrading = is_get and super()._get_upgrade() == b"websocket"
        return self._is_upgrading

    def handle_websocket_upgrade(self, rest: bytes = b"") -> None:
        """Hands the connection over. `rest` is the input after the head, which a client must not send yet."""
        if rest:
            self._refuse(400)
            return
        self._deadline = math.inf
        self.transport.pause_reading()
        task = self.loop.create_task(self._hand_over(), name="websocket")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _hand_over(self) -> None:
        if not self._upgrade or self.transport.is_closing():
            return
        websocket = await self._upgrade()
        if self.transport.is_closing():
            return
        lines = [b"GET %s HTTP/1.1" % self.url, *(b"%s: %s" % header for header in self.headers)]
        self.connections.discard(self)
        self.parser = None  # type: ignore[assignment]  # it refers to this connection
        websocket.connection_made(self.transport)
        self.transport.set_protocol(websocket)
        websocket.data_received(b"\r\n".join([*lines, b"", b""]))
        if not self.transport.is_closing():
            self.transport.resume_reading()

    # Callbacks of uvicorn and of the transport

    def on_response_complete(self) -> None:
        self._running = self.pipeline[-1][0] if self.pipeline else None  # uvicorn starts it
        if self._stage == "body" and not self.pipeline:
            self._linger()  # the application answered without reading the whole body
            return
        super().on_response_complete()
        if self._running is None and not self.transport.is_closing():
            self._stage = "idle" if self._stage == "read" else self._stage
            self._idle[self] = None

    def timeout_keep_alive_handler(self) -> None:
        self.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline = self.loop.time() + self._limits.write_time

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_deadline = math.inf

    # Closing

    def check(self, now: float) -> None:
        """Closes the connection if one of its deadlines has passed. `now` is the time of the event loop."""
        if self.transport.is_closing():
            self._close_deadline = min(self._close_deadline, now + self._limits.write_time)
        if now > self._write_deadline or now > self._close_deadline:
            self.abort()
        elif now > self._deadline:
            self._end_reading(now)

    def _end_reading(self, now: float) -> None:
        if self.flow.read_paused:
            self._deadline = now + self._limits.head_time  # the application is slow, not the client
        elif self._stage == "idle":
            self.close()
        else:
            self._refuse(408)

    def close(self) -> None:
        """Closes the connection after the answer was sent, or after `write_time`."""
        self._idle.pop(self, None)
        self._discards = True
        self.transport.close()

    def abort(self) -> None:
        """Closes the connection at once. The application's sends are ignored from now on."""
        self._idle.pop(self, None)
        self._disconnect_requests()
        self._discards = True
        self.transport.abort()

    def _refuse(self, status: int) -> None:
        if self._running is not None or self.pipeline:
            self.abort()  # an answer is on its way, so an error cannot be said in between
            return
        reason = _REASONS[status].encode() + b"\n"
        retry = b"retry-after: 1\r\n" if status == 503 else b""
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n%sconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head % (len(reason), retry) + reason)
        self._linger()

    def _linger(self) -> None:
        """Sends the end of the stream. Discards the input until the client closes, within the limits of lingering.

        An immediate `close` with unread input would reset the connection, and the client would lose the answer.
        """
        if self.transport.is_closing():
            return
        self._idle.pop(self, None)
        self._discards = True
        self._deadline = math.inf
        self._close_deadline = self.loop.time() + self._limits.linger_time
        self.flow.resume_reading()
        if self.transport.can_write_eof():  # TLS cannot
            self.transport.write_eof()

    def _discard(self, length: int) -> None:
        self._discarded += length
        if self._discarded > self._limits.linger_size:
            self.abort()

    def _set_deadline(self) -> None:
        times = {"head": self._limits.head_time, "body": self._limits.body_time}
        self._deadline = self.loop.time() + times.get(self._stage, math.inf)

    def _head_size(self) -> int:
        # Each header has a colon, a space and the end of the line besides.
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _disconnect_requests(self) -> None:
        """Marks every unanswered request as disconnected. uvicorn marks only the one that it read last."""
        waiting = [cycle for cycle, _ in self.pipeline]
        for cycle in [*waiting, *([self._running] if self._running else [])]:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()


class HttpProtocol:
    """Creates the connections to an ASGI application."""

    def __init__(self, app: Any, limits: ServerLimits) -> None:
        self._config = Config(app, http=Connection, interface="asgi3", ws="none", lifespan="off", log_config=None)
        self._config.access_log = False
        self._config.proxy_headers = False  # the client is the peer of the connection, whatever its headers say
        self._config.timeout_keep_alive = limits.idle_time  # type: ignore[assignment]  # a delay of `call_later`
        self._config.load()
        self._limits = limits
        self._has_websockets = importlib.util.find_spec("websockets") is not None
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
        upgrade = self._websocket if self._limits.message_size and self._has_websockets else None
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
