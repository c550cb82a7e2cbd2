"""One WebSocket: uvicorn's protocol without compression, with bounds on sizes, times and numbers.

The package websockets takes 20 ms, so a server imports this module when the first client asks for a WebSocket.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame

from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.server import is_no_cancellation

_logger = logging.getLogger("otel_zernel_libraries.serving.websocket")
_logger.setLevel(logging.WARNING)  # below, uvicorn and websockets describe every connection
_logger.addFilter(is_no_cancellation)

_FRAGMENT: Final = 64 << 10
"""Characters of one frame. A longer text is sent in several: a client that reads nothing holds one of them."""
_MOST_PIECES: Final = 100
"""Fragments of a message that are kept before they are joined. Each takes 50 bytes besides its data."""
_MOST_MESSAGES: Final = 1000
"""Messages that wait for the application: those of one read. More than these is an attack."""


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket that closes itself when its client exceeds a limit. The server calls `check` regularly."""

    def __init__(self, config: Config, state: ServerState, limits: ServerLimits) -> None:
        super().__init__(config, state, {})
        self.logger = self.conn.logger = _logger
        self.conn.debug = False
        self._limits = limits
        self._deadline = math.inf
        """For the application's answer to the handshake, and for a client that reads nothing."""
        self._close_deadline = math.inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        if self._limits.write_buffer:
            transport.set_write_buffer_limits(high=self._limits.write_buffer)

    def data_received(self, data: bytes) -> None:
        if self.handshake_initiated and not self.handshake_complete:
            self.abort()  # a client must wait for the answer (RFC 6455, 4.1)
            return
        super().data_received(data)
        if self.conn.handshake_exc and not self.handshake_initiated:
            self._refuse_handshake()
        elif not self.queue.empty() and self.queue.qsize() > _MOST_MESSAGES:
            self._fail(CloseCode.POLICY_VIOLATION, "too many messages at once")

    def check(self, now: float) -> None:
        """Closes the connection if one of its deadlines has passed. `now` is the time of the event loop."""
        if self.transport.is_closing():
            self._close_deadline = min(self._close_deadline, now + self._limits.linger_time)
        if now > self._deadline or now > self._close_deadline:
            self.abort()

    def abort(self) -> None:
        """Closes the connection at once. What the application sends from now on raises `ClientDisconnected`."""
        self.disconnected = True
        self.writable.set()
        self.transport.abort()

    # Callbacks of uvicorn and of the transport

    def pause_writing(self) -> None:
        """The client reads too slowly. Nothing of it is read either, because its pings would be answered."""
        super().pause_writing()
        self._deadline = self.loop.time() + self._limits.write_time
        if not self.read_paused and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._deadline = math.inf
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    async def receive(self) -> Any:
        """The next event for the application. uvicorn reads on after it, even if the client does not."""
        message = await super().receive()
        if not self.writable.is_set() and not self.transport.is_closing():
            self.transport.pause_reading()
        return message

    async def send(self, message: Any) -> None:
        """Sends an event of the application. Raises `ClientDisconnected`, an `OSError`, if the WebSocket is closed."""
        await self.writable.wait()
        if self.close_sent:  # by this class: to uvicorn it would be an error of the application
            raise ClientDisconnected
        text = message.get("text") if message["type"] == "websocket.send" else None
        if text is not None and len(text) > _FRAGMENT:
            await self._send_fragments(text)
            return
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # else uvicorn logs an error

    async def _send_fragments(self, text: str) -> None:
        """Sends a long text. Each fragment waits until the client has read the ones before."""
        for start in range(0, len(text), _FRAGMENT):
            await self.writable.wait()
            if self.disconnected or self.close_sent:
                raise ClientDisconnected
            send = self.conn.send_continuation if start else self.conn.send_text
            try:
                send(text[start : start + _FRAGMENT].encode(), start + _FRAGMENT >= len(text))
            except InvalidState as error:
                raise ClientDisconnected from error
            self.transport.write(b"".join(self.conn.data_to_send()))

    def handle_text(self, event: Frame) -> None:
        super().handle_text(_owned(event))

    def handle_bytes(self, event: Frame) -> None:
        super().handle_bytes(_owned(event))

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) > _MOST_PIECES:
            self.frames = [b"".join(self.frames)]
        super().handle_cont(_owned(event))

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_utf8(b"".join(self.frames)):
            self.frames = []
            self._fail(CloseCode.INVALID_DATA, "not UTF-8")
            return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is None:  # a violation before the handshake was complete
            self.abort()
            return
        super().handle_parser_exception()

    # Closing

    def _refuse_handshake(self) -> None:
        """Answers a request that is not a valid handshake."""
        output = b"".join(self.conn.data_to_send())
        self.transport.write(output or b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.handshake_complete = self.close_sent = True
        self.transport.close()

    def _fail(self, code: CloseCode, reason: str) -> None:
        """Ends the connection because of an error of the client."""
        if self.close_sent or self.transport.is_closing():
            return
        self.conn.fail(code, reason)
        self.handle_parser_exception()


def new_factory(config: Config, state: ServerState, limits: ServerLimits) -> Callable[[], WebSocketConnection]:
    """A function that makes the connections of one server."""
    config.ws_max_size = limits.message_size
    config.ws_ping_interval = limits.ping_interval
    config.ws_ping_timeout = limits.ping_timeout
    config.ws_per_message_deflate = False
    return lambda: WebSocketConnection(config, state, limits)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _owned(event: Frame) -> Frame:
    """The frame with its data as bytes, which ASGI promises."""
    if not isinstance(event.data, bytes):
        event.data = bytes(event.data)
    return event
