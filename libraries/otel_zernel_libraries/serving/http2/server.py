"""The HTTP/2 server of gRPC, and the transport and lifetime of one connection.

`streams` handles the frames.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection
from typing import Any, Final, cast

from otel_zernel.component import Logger
from otel_zernel_libraries.serving.http2 import limits as bounds
from otel_zernel_libraries.serving.http2 import wire
from otel_zernel_libraries.serving.http2.call import Peer
from otel_zernel_libraries.serving.http2.reading import FrameReader
from otel_zernel_libraries.serving.http2.streams import ServerParts, Streams
from otel_zernel_libraries.serving.http2.wire import ConnectionBroken, ErrorCode, frame, goaway, settings, window_update
from otel_zernel_libraries.serving.misdirected import Misdirected, protocol_of
from otel_zernel_libraries.serving.requests.failures import overloaded, too_slow
from otel_zernel_libraries.serving.server import Server


class Http2Connection(asyncio.Protocol):
    """A client's connection. The server calls `sweep` several times a second."""

    def __init__(
        self,
        parts: ServerParts,
        began: Callable[["Http2Connection"], None],
        ended: Callable[["Http2Connection"], None],
        mistook: Callable[[str], None],
    ) -> None:
        """`mistook` gets the protocol of a client that does not speak HTTP/2."""
        self.idle_since = parts.now()
        self._opened_at = self.idle_since
        self._limits = parts.limits
        self._now = parts.now
        self._began = began
        """Called when the connection is made, after a TLS handshake."""
        self._ended = ended
        self._mistook = mistook
        self._transport: asyncio.Transport | None = None
        self._unwritten: list[bytes] = []
        self._unwritten_size = 0
        self._is_reading = False
        self._after_reading: list[Callable[[], None]] = []
        self.peer = Peer()
        self._streams = Streams(parts, self)
        self._reader = FrameReader(self._streams)
        self._write_deadline: float | None = None
        self._going_since: float | None = None
        """When the client got GOAWAY: no new calls."""

    @property
    def is_idle(self) -> bool:
        """Whether no call runs."""
        return not self._streams.calls

    @property
    def is_spare(self) -> bool:
        """Whether no request arrives or is answered, so that the connection may be closed without harm."""
        return not any(call.is_busy for call in self._streams.calls.values())

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer.meet(transport)
        self._began(self)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if tls and tls.selected_alpn_protocol() != "h2":
            self._mistook("alpn")
            self.abort()
            return
        ours = {
            wire.MAX_CONCURRENT_STREAMS: self._limits.streams,
            wire.INITIAL_WINDOW_SIZE: min(self._limits.message + wire.DEFAULT_WINDOW, wire.LARGEST_WINDOW),
            wire.MAX_FRAME_SIZE: bounds.FRAME,
            wire.MAX_HEADER_LIST_SIZE: bounds.HEADER_BLOCK,
        }
        self.write(settings(ours) + window_update(0, bounds.CONNECTION_WINDOW - wire.DEFAULT_WINDOW))

    def data_received(self, data: bytes) -> None:
        self._streams.pings.heard()
        self._is_reading = True
        try:
            self._read(data)
        finally:
            self._is_reading = False
            self._write_all()

    def _read(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
        except ConnectionBroken as error:
            if not self._reader.has_preface:
                self._mistook(protocol_of(data) or "")
            self.go_away(error.code, str(error))
            self._close()
        functions, self._after_reading = self._after_reading, []
        for function in functions:
            function()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self.peer.closed = True
        for call in list(self._streams.calls.values()):
            call.give_up()
        self._ended(self)

    def pause_writing(self) -> None:
        """The client does not read. Until it does, its requests wait too."""
        self._write_deadline = self._now() + self._limits.write_time
        if self._transport:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._write_deadline = None
        if self._transport:
            self._transport.resume_reading()

    # Writing

    def later(self, function: Callable[[], None]) -> None:
        """Calls a function after everything that was read is handled."""
        if self._is_reading:
            self._after_reading.append(function)
        else:
            asyncio.get_running_loop().call_soon(function)

    def write(self, data: bytes) -> None:
        """Writes after everything that was read is handled: one system call for the answers to many requests."""
        if not self._unwritten and not self._is_reading:
            asyncio.get_running_loop().call_soon(self._write_all)
        self._unwritten.append(data)
        self._unwritten_size += len(data)

    def unread(self) -> int:
        """Bytes that were written, and that the system has not taken."""
        return self._unwritten_size + (self._transport.get_write_buffer_size() if self._transport else 0)

    def _write_all(self) -> None:
        data, self._unwritten, self._unwritten_size = b"".join(self._unwritten), [], 0
        if data and self._transport and not self._transport.is_closing():
            self._transport.write(data)

    # The end

    def go_away(self, code: ErrorCode = ErrorCode.NO_ERROR, message: str = "") -> None:
        """Accepts no more calls. The connection closes after the last running one."""
        if self._going_since is None:
            self._going_since = self._now()
            self._streams.accepts = False
            self.write(goaway(self._streams.last, code, message))
            if self.is_idle:
                self._close()

    def refuse_all(self) -> None:
        """The server ends: running calls get an answer that asks to try again."""
        for call in list(self._streams.calls.values()):
            if call.task:
                call.task.cancel()
            call.fail(overloaded("the collector stops; send again"))

    def abort(self) -> None:
        """Closes the connection at once."""
        if self._transport:
            self._transport.abort()

    def _close(self) -> None:
        """Closes the connection after what was written."""
        self._write_all()
        if self._transport:
            self._transport.close()

    def become_idle(self) -> None:
        self.idle_since = self._now()
        if self._going_since is not None:
            self._close()

    def sweep(self, now: float, elapsed: float) -> None:
        """Ends what takes too long. `elapsed` is the time since the last sweep in s."""
        self._streams.nuisances.forgive(bounds.FORGIVEN_A_SECOND * elapsed)
        pings = self._streams.pings
        deadlines = (self._streams.head_deadline, self._write_deadline)
        if any(deadline is not None and now > deadline for deadline in deadlines) or pings.is_dead(now):
            self.abort()
            return
        self._end_slow_calls(now)
        if pings.is_due(now):
            self.write(frame(wire.PING, 0, 0, bytes(8)))
        self._retire(now)

    def _end_slow_calls(self, now: float) -> None:
        for call in list(self._streams.calls.values()):
            if call.is_arriving and now - call.started > self._limits.body_time:
                call.fail(too_slow("the message arrives too slowly"))
            elif call.waits and now - call.started > self._limits.body_time + self._limits.write_time:
                call.give_up()

    def _retire(self, now: float) -> None:
        limits = self._limits
        is_unused = limits.idle_time and self.is_idle and now - self.idle_since > limits.idle_time
        if is_unused or (limits.age and now - self._opened_at > limits.age):
            self.go_away()
        if self._going_since is not None and limits.age_grace and now - self._going_since > limits.age_grace:
            self._close()


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
