"""The streams of one connection: opens calls, keeps the windows, and counts what a client sends in excess. RFC 9113.

It bounds floods of pings, settings, resets, empty frames and CONTINUATION frames, and header bombs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from otel_zernel_libraries.serving.http2 import limits as bounds
from otel_zernel_libraries.serving.http2 import wire
from otel_zernel_libraries.serving.http2.call import Call, Peer, Route, refusal
from otel_zernel_libraries.serving.http2.limits import Http2Limits, Nuisances, Pings
from otel_zernel_libraries.serving.http2.reading import (
    HeaderBlocks,
    Headers,
    check_acknowledgement,
    check_request,
    initial_window,
)
from otel_zernel_libraries.serving.http2.wire import ConnectionBroken, ErrorCode, StreamBroken, frame, window_update
from otel_zernel_libraries.serving.requests.failures import RequestFailure
from otel_zernel_libraries.serving.requests.room import Room

_OF_CONNECTION: Final = frozenset({wire.SETTINGS, wire.PING, wire.GOAWAY})
_OF_STREAM: Final = frozenset({wire.DATA, wire.HEADERS, wire.PRIORITY, wire.RST_STREAM})
_EVEN: Final = "a client has odd streams"


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What every connection of a server uses."""

    route: Route
    """Finds the method for the headers of a request."""
    room: Room
    """The memory for the messages of all connections."""
    limits: Http2Limits
    now: Callable[[], float]
    """The monotonic clock, in s."""


class FrameOutlet(Protocol):
    """The connection below the streams."""

    peer: Peer

    def write(self, data: bytes) -> None:
        """Sends frames."""

    def unread(self) -> int:
        """The number of bytes that are not sent yet."""

    def later(self, function: Callable[[], None]) -> None:
        """Calls the function when all that was read is handled."""

    def become_idle(self) -> None:
        """Is called when the last call has ended."""


class Streams:
    """Handles the frames of one connection."""

    def __init__(self, parts: ServerParts, outlet: FrameOutlet) -> None:
        limits = self.limits = parts.limits
        now = self.now = parts.now
        self.room = parts.room
        self.peer = outlet.peer
        self.write: Callable[[bytes], None] = outlet.write
        self.unread = outlet.unread
        self.later: Callable[[Callable[[], None]], None] = outlet.later
        self.queued = 0
        self.calls: dict[int, Call] = {}
        self.pings = Pings(limits, now)
        self.nuisances = Nuisances()
        self.send_window = wire.DEFAULT_WINDOW
        self.initial_send_window = wire.DEFAULT_WINDOW
        """The window of new streams."""
        self.last = 0
        """The newest stream of the client."""
        self.head_deadline: float | None = now() + limits.head_time
        """For the first settings, and for a header block."""
        self.accepts = True
        """Whether new calls are answered. They are ignored after GOAWAY."""
        self._route = parts.route
        self._emptied = outlet.become_idle
        self._blocks = HeaderBlocks()
        self._body_of: Call | None = None
        """The call whose data is arriving; None if it is forgotten."""
        self._body_ends = False
        self._unacknowledged = 0
        """Bytes of data that the connection's window lacks."""
        self._handlers: dict[int, Callable[[int, int, bytes], None]] = {
            wire.HEADERS: self._begin_block,
            wire.CONTINUATION: self._extend_block,
            wire.RST_STREAM: self._reset,
            wire.SETTINGS: self._settings,
            wire.PUSH_PROMISE: self._promise,
            wire.PING: self._ping,
            wire.WINDOW_UPDATE: self._window,
        }

    # Frames

    def check(self, kind: int, flags: int, stream: int) -> None:
        if self._blocks.stream:
            if kind != wire.CONTINUATION or stream != self._blocks.stream:
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a header block is interrupted")
        elif self.head_deadline is not None:
            if kind != wire.SETTINGS or flags & wire.ACK:
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "the first frame must be SETTINGS")
            self.head_deadline = None
        if kind in (_OF_CONNECTION if stream else _OF_STREAM):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a frame is on a wrong stream")

    def handle(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if len(payload) != wire.FRAME_SIZES.get(kind, len(payload)):
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, f"a frame of kind {kind} has {len(payload)} bytes")
        if kind not in (wire.DATA, wire.HEADERS):
            self.nuisances.add()
        if handler := self._handlers.get(kind):
            handler(flags, stream, payload)

    # Bodies

    def begin_body(self, stream: int, length: int, padding: int, *, ends: bool) -> None:
        if stream > self.last:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "data on a stream that is not open")
        call = self.calls.get(stream)
        if call and call.half_closed:
            self._break(stream, ErrorCode.STREAM_CLOSED)
            call = None
        if not length and not ends:
            self.nuisances.add()
        self._body_of = call
        self._body_ends = ends
        if padding:
            self._consume(padding)
            if call and not ends:  # the window of a stream has room for one message without padding
                self.write(window_update(stream, padding))

    def read_body(self, data: bytes) -> None:
        self._consume(len(data))
        call = self._body_of
        if call and not call.closed:
            try:
                call.feed(data)
            except RequestFailure as failure:
                call.fail(failure)

    def end_body(self) -> None:
        call, self._body_of = self._body_of, None
        if call and self._body_ends:
            self._end(call)

    def _consume(self, size: int) -> None:
        """Gives the connection's window back. `Room` bounds the memory."""
        self._unacknowledged += size
        if self._unacknowledged > bounds.CONNECTION_WINDOW // 2:
            self.write(window_update(0, self._unacknowledged))
            self._unacknowledged = 0

    def _end(self, call: Call) -> None:
        self.nuisances.forgive(bounds.FORGIVEN_A_REQUEST)
        if not call.closed:
            try:
                call.end()
            except RequestFailure as failure:
                call.fail(failure)

    # Headers

    def _begin_block(self, flags: int, stream: int, payload: bytes) -> None:
        self._read_block(stream, lambda: self._blocks.begin(flags, stream, payload))

    def _extend_block(self, flags: int, stream: int, payload: bytes) -> None:
        self._read_block(stream, lambda: self._blocks.extend(flags, payload))

    def _read_block(self, stream: int, read: Callable[[], Headers | None]) -> None:
        try:
            self._finish_block(stream, read())
        except StreamBroken as error:
            self.head_deadline = None
            if not stream % 2:
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, _EVEN) from error
            self.last = max(self.last, stream)
            self._break(stream, error.code)

    def _break(self, stream: int, code: ErrorCode) -> None:
        """Ends one stream. Frames that the client has sent on it meanwhile are ignored."""
        self.nuisances.add()
        if call := self.calls.get(stream):
            call.give_up()
        self.write(frame(wire.RST_STREAM, 0, stream, wire.UINT32.pack(code)))

    def _finish_block(self, stream: int, headers: Headers | None) -> None:
        if headers is None:
            self.head_deadline = self.head_deadline or self.now() + self.limits.head_time
            return
        self.head_deadline = None
        if call := self.calls.get(stream):
            if call.half_closed:
                raise StreamBroken(ErrorCode.STREAM_CLOSED, "headers after the end of a request")
            if not self._blocks.are_trailers(headers):
                raise StreamBroken(ErrorCode.PROTOCOL_ERROR, "headers inside of a request")
            self._end(call)
        elif stream <= self.last:
            if not self._blocks.are_trailers(headers):
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a request on a stream that is older than the last")
            self.nuisances.add()  # trailers of a call that was answered early
        elif not stream % 2:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, _EVEN)
        else:
            check_request(headers)
            self.last = stream
            if self.accepts:
                self._open(stream, headers, ends=self._blocks.ends)

    def _open(self, stream: int, headers: Headers, *, ends: bool) -> None:
        if len(self.calls) >= self.limits.streams:
            self.nuisances.add()
            self.write(frame(wire.RST_STREAM, 0, stream, wire.UINT32.pack(ErrorCode.REFUSED_STREAM)))
            return
        try:
            method = self._route(headers)
        except RequestFailure as failure:
            self.nuisances.add()
            self.write(refusal(stream, failure, half_closed=ends))
            return
        call = self.calls[stream] = Call(stream, headers, method, self)
        try:
            call.hold.add(bounds.CALL)
            method.begin(call)
        except RequestFailure as failure:
            call.half_closed = ends
            call.fail(failure)
        if ends:
            self._end(call)

    # Control

    def _reset(self, _: int, stream: int, __: bytes) -> None:
        if stream > self.last:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a reset of a stream that is not open")
        if call := self.calls.get(stream):
            call.give_up()

    def _settings(self, flags: int, _: int, payload: bytes) -> None:
        if flags & wire.ACK:
            check_acknowledgement(payload)
            return
        if (window := initial_window(payload)) is not None:
            self._resize_windows(window)
        self.write(frame(wire.SETTINGS, wire.ACK, 0))

    def _resize_windows(self, size: int) -> None:
        if size > wire.LARGEST_WINDOW:
            raise ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, "a window is too large")
        change, self.initial_send_window = size - self.initial_send_window, size
        for call in self.calls.values():
            call.send_window += change
            if call.send_window > wire.LARGEST_WINDOW:
                raise ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, "the window of a stream is too large")
        self._flush()

    def _promise(self, _: int, __: int, ___: bytes) -> None:
        raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a client cannot push")

    def _window(self, _: int, stream: int, payload: bytes) -> None:
        change = int.from_bytes(payload) & wire.LARGEST_WINDOW
        if stream > self.last or (not change and not stream):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a window update is not valid")
        if not stream:
            self.send_window += change
            if self.send_window > wire.LARGEST_WINDOW:
                raise ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, "the window is too large")
            self._flush()
        elif call := self.calls.get(stream):
            call.send_window += change
            if not change:
                self._break(stream, ErrorCode.PROTOCOL_ERROR)
            elif call.send_window > wire.LARGEST_WINDOW:
                self._break(stream, ErrorCode.FLOW_CONTROL_ERROR)
            else:
                call.flush()

    def _flush(self) -> None:
        for call in [call for call in self.calls.values() if call.waits]:
            call.flush()

    def _ping(self, flags: int, _: int, payload: bytes) -> None:
        if not flags & wire.ACK:
            self.pings.check(has_calls=bool(self.calls))
            self.write(frame(wire.PING, wire.ACK, 0, payload))

    # The ends of calls

    def forget(self, call: Call) -> None:
        """The call is answered."""
        self.pings.answered()
        if self.calls.pop(call.id, None) and not self.calls:
            self._emptied()
