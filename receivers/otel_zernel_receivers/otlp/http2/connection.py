"""One connection of HTTP/2: reads frames, keeps the windows, and ends clients that do harm. RFC 9113.

It bounds floods of pings, settings, resets, empty frames and CONTINUATION frames, header bombs, and clients that send
slowly or do not read.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from otel_zernel_receivers.otlp.failures import Failure, overloaded, too_slow
from otel_zernel_receivers.otlp.http2 import limits as bounds
from otel_zernel_receivers.otlp.http2.call import Call, Method, refusal
from otel_zernel_receivers.otlp.http2.limits import Http2Limits
from otel_zernel_receivers.otlp.http2.pings import Pings
from otel_zernel_receivers.otlp.http2.wire import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    LARGEST_WINDOW,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTING,
    SETTINGS,
    UINT32,
    ConnectionBroken,
    ErrorCode,
    HeaderDecoder,
    frame,
    goaway,
    settings,
    window_update,
)
from otel_zernel_receivers.otlp.intake import Room

Route = Callable[[Mapping[str, str]], Method]
"""Finds the method of a call by its headers. Raises `Failure`."""

_PLACED: Final = frozenset({DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY})
"""The frames that belong either to a stream or to the connection."""
_HEAD: Final = 9
"""Bytes of a frame's header."""


class Http2Connection(asyncio.Protocol):
    """A client's connection."""

    def __init__(
        self,
        route: Route,
        room: Room,
        limits: Http2Limits,
        now: Callable[[], float],
        ended: Callable[["Http2Connection"], None],
    ) -> None:
        self.limits = limits
        self.send_window = DEFAULT_WINDOW
        self.initial_send_window = DEFAULT_WINDOW
        """The window of new streams."""
        self.calls: dict[int, Call] = {}
        self.idle_since = now()
        self._opened_at = self.idle_since
        self._route = route
        self.room = room
        self.now = now
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._unwritten: list[bytes] = []
        self._decoder = HeaderDecoder()
        self._pings = Pings(limits, now)
        self._rest = b""
        """Bytes of an unfinished frame."""
        self._has_preface = False
        self._body_of: Call | None = None
        self._body_left = 0
        """Bytes of the current DATA frame that have not arrived, which belong to `_body_of`."""
        self._body_ends = False
        self._block = b""
        self._block_of = 0
        """The stream whose header block is unfinished; 0 for none."""
        self._block_ends = False
        self._last_stream = 0
        self._unacknowledged = 0
        """Bytes of data that the connection's window lacks."""
        self._nuisances = 0.0
        self._head_deadline: float | None = self.idle_since + limits.head_time
        self._write_deadline: float | None = None
        self._going_since: float | None = None
        """When the connection got GOAWAY: no new calls."""

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if tls and tls.selected_alpn_protocol() != "h2":
            self.abort()
            return
        ours = {
            MAX_CONCURRENT_STREAMS: self.limits.streams,
            INITIAL_WINDOW_SIZE: min(self.limits.message + DEFAULT_WINDOW, LARGEST_WINDOW),
            MAX_FRAME_SIZE: bounds.FRAME,
            MAX_HEADER_LIST_SIZE: bounds.HEADER_BLOCK,
        }
        self.write(settings(ours) + window_update(0, bounds.CONNECTION_WINDOW - DEFAULT_WINDOW))

    def data_received(self, data: bytes) -> None:
        self._pings.heard()
        try:
            self._read(data)
        except ConnectionBroken as error:
            self.go_away(error.code, str(error))
            self.close()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        for call in list(self.calls.values()):
            self._give_up(call)
        self._ended(self)

    def pause_writing(self) -> None:
        """The client does not read. Until it does, its requests wait too."""
        self._write_deadline = self.now() + self.limits.write_time
        if self._transport:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._write_deadline = None
        if self._transport:
            self._transport.resume_reading()

    # Frames

    def _read(self, data: bytes) -> None:
        position = 0
        if self._rest:
            data, self._rest = self._rest + data, b""
        if not self._has_preface:
            position = self._read_preface(data)
            if not self._has_preface:
                return
        size = len(data)
        while True:
            if self._body_left:
                taken = min(self._body_left, size - position)
                self._read_body(data[position : position + taken])
                position += taken
                if self._body_left:
                    return
            if size - position < _HEAD:
                break
            length = int.from_bytes(data[position : position + 3])
            kind, flags = data[position + 3], data[position + 4]
            stream = int.from_bytes(data[position + 5 : position + _HEAD]) & LARGEST_WINDOW
            self._check(kind, flags, length, stream)
            position += _HEAD
            if kind == DATA and not flags & PADDED:
                self._begin_body(stream, length, ends=bool(flags & END_STREAM))
                continue
            if size - position < length:
                position -= _HEAD
                break
            self._handle(kind, flags, stream, data[position : position + length])
            position += length
        self._rest = data[position:]

    def _read_preface(self, data: bytes) -> int:
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "this port speaks gRPC over HTTP/2 only")
        if len(data) < len(PREFACE):
            self._rest = data
            return 0
        self._has_preface = True
        return len(PREFACE)

    def _check(self, kind: int, flags: int, length: int, stream: int) -> None:
        """Refuses frames that are too long, or not allowed here, before they are read."""
        longest = bounds.FRAME if kind == DATA and not flags & PADDED else bounds.HEADER_BLOCK
        if length > longest:
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes is too long")
        if self._block_of and (kind != CONTINUATION or stream != self._block_of):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a header block is interrupted")
        if self._head_deadline is not None and not self._block_of:
            if kind != SETTINGS or flags & ACK:
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "the first frame must be SETTINGS")
            self._head_deadline = None

    def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if (kind in (SETTINGS, PING, GOAWAY) and stream) or (
            kind in (DATA, HEADERS, PRIORITY, RST_STREAM) and not stream
        ):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a frame is on a wrong stream")
        match kind:
            case 0:
                self._padded_data(flags, stream, payload)
            case 1:
                self._begin_block(flags, stream, payload)
            case 9:
                self._continue_block(flags, payload)
            case 3:
                self._reset(stream, payload)
            case 4:
                self._settings(flags, payload)
            case 6:
                self._ping(flags, payload)
            case 8:
                self._window(stream, payload)
            case 5:
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a client cannot push")
            case 2 if len(payload) != 5:
                raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "a priority has 5 bytes")
            case _:  # PRIORITY, GOAWAY, and kinds of the future
                self._annoy()

    # Bodies

    def _begin_body(self, stream: int, length: int, *, ends: bool) -> None:
        if not stream or stream > self._last_stream:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "data on a stream that is not open")
        call = self.calls.get(stream)
        if call and call.half_closed:
            raise ConnectionBroken(ErrorCode.STREAM_CLOSED, "data after the end of a request")
        if not length and not ends:
            self._annoy()
        self._body_of, self._body_left, self._body_ends = call, length, ends
        if not length:
            self._end_body()

    def _read_body(self, data: bytes) -> None:
        size = len(data)
        self._body_left -= size
        self._consume(size)
        call = self._body_of
        if call and not call.closed and size:
            self._guard(call, lambda: call.feed(data))
        if not self._body_left:
            self._end_body()

    def _end_body(self) -> None:
        call, self._body_of = self._body_of, None
        if call and self._body_ends:
            self._end(call)

    def _padded_data(self, flags: int, stream: int, payload: bytes) -> None:
        content = _unpadded(payload)
        self._consume(len(payload) - len(content))
        self._begin_body(stream, len(content), ends=bool(flags & END_STREAM))
        if content:
            self._read_body(content)

    def _consume(self, size: int) -> None:
        """Gives the connection's window back. `Room` bounds the memory."""
        self._unacknowledged += size
        if self._unacknowledged > bounds.CONNECTION_WINDOW:
            raise ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, "more data than the window allows")
        if self._unacknowledged > bounds.CONNECTION_WINDOW // 2:
            self.write(window_update(0, self._unacknowledged))
            self._unacknowledged = 0

    def _end(self, call: Call) -> None:
        self._nuisances = max(0.0, self._nuisances - bounds.FORGIVEN_A_REQUEST)
        if not call.closed:
            self._guard(call, call.end)

    # Headers

    def _begin_block(self, flags: int, stream: int, payload: bytes) -> None:
        block = _unpadded(payload) if flags & PADDED else payload
        self._block = block[5:] if flags & HAS_PRIORITY else block
        self._block_of, self._block_ends = stream, bool(flags & END_STREAM)
        if flags & END_HEADERS:
            self._end_block()
        else:
            self._head_deadline = self.now() + self.limits.head_time

    def _continue_block(self, flags: int, payload: bytes) -> None:
        if not self._block_of:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._annoy()
        self._block += payload
        if len(self._block) > bounds.HEADER_BLOCK:
            raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "the headers are too long")
        if flags & END_HEADERS:
            self._head_deadline = None
            self._end_block()

    def _end_block(self) -> None:
        stream, ends, block = self._block_of, self._block_ends, self._block
        self._block_of, self._block = 0, b""
        headers = self._decoder.decode(block)  # also for refused streams: the block may change the table
        if call := self.calls.get(stream):
            if call.half_closed or not ends:
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "headers inside of a request")
            self._end(call)
            return
        if stream <= self._last_stream:
            self._annoy()  # trailers of a call that was answered early
            return
        if not stream % 2:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a client has odd streams")
        self._last_stream = stream
        if self._going_since is None:
            self._open(stream, headers, ends=ends)

    def _open(self, stream: int, headers: Mapping[str, str], *, ends: bool) -> None:
        if len(self.calls) >= self.limits.streams:
            self._annoy()
            self.write(frame(RST_STREAM, 0, stream, UINT32.pack(ErrorCode.REFUSED_STREAM)))
            return
        try:
            method = self._route(headers)
        except Failure as failure:
            self.write(refusal(stream, failure, half_closed=ends))
            return
        call = Call(stream, headers, method, self)
        self.calls[stream] = call
        self._guard(call, lambda: self._begin(call))
        if ends:
            self._end(call)

    def _begin(self, call: Call) -> None:
        call.hold.add(bounds.CALL)
        call.method.begin(call)

    # Control

    def _reset(self, stream: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM has 4 bytes")
        if stream > self._last_stream:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a reset of a stream that is not open")
        self._annoy()
        if call := self.calls.get(stream):
            self._give_up(call)

    def _settings(self, flags: int, payload: bytes) -> None:
        if len(payload) % 6 or (flags & ACK and payload):
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS has a wrong size")
        self._annoy()
        if flags & ACK:
            return
        for name, value in SETTING.iter_unpack(payload):
            if name == INITIAL_WINDOW_SIZE:
                self._resize_windows(value)
        self.write(frame(SETTINGS, ACK, 0))

    def _resize_windows(self, size: int) -> None:
        if size > LARGEST_WINDOW:
            raise ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, "a window is too large")
        change, self.initial_send_window = size - self.initial_send_window, size
        for call in list(self.calls.values()):
            call.send_window += change
            call.flush()

    def _window(self, stream: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE has 4 bytes")
        self._annoy()
        change = int.from_bytes(payload) & LARGEST_WINDOW
        if not change or (stream and stream > self._last_stream):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a window update is not valid")
        if stream:
            if call := self.calls.get(stream):
                call.send_window += change
                call.flush()
            return
        self.send_window += change
        if self.send_window > LARGEST_WINDOW:
            raise ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, "the window is too large")
        for call in list(self.calls.values()):
            call.flush()

    def _ping(self, flags: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "PING has 8 bytes")
        self._annoy()
        if flags & ACK:
            return
        self._pings.check(has_calls=bool(self.calls))
        self.write(frame(PING, ACK, 0, payload))

    def _annoy(self) -> None:
        self._nuisances += 1
        if self._nuisances > bounds.NUISANCES:
            raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "too many control frames")

    # What calls and the server ask for

    def write(self, data: bytes) -> None:
        """Writes at the end of this turn of the event loop: one system call for the answers to many requests."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write_all)
        self._unwritten.append(data)

    def _write_all(self) -> None:
        data, self._unwritten = b"".join(self._unwritten), []
        if data and self._transport and not self._transport.is_closing():
            self._transport.write(data)

    def forget(self, call: Call) -> None:
        """The call is answered."""
        self._pings.answered()
        call.hold.give_back()
        if self.calls.pop(call.id, None) and not self.calls:
            self.idle_since = self.now()
            if self._going_since is not None:
                self.close()

    def go_away(self, code: ErrorCode = ErrorCode.NO_ERROR, message: str = "") -> None:
        """Accepts no more calls. The connection closes after the last running one."""
        if self._going_since is None:
            self._going_since = self.now()
            self.write(goaway(self._last_stream, code, message))
            if not self.calls:
                self.close()

    def close(self) -> None:
        """Closes the connection after what was written."""
        self._write_all()
        if self._transport:
            self._transport.close()

    def abort(self) -> None:
        """Closes the connection at once."""
        if self._transport:
            self._transport.abort()

    def sweep(self, now: float) -> None:
        """Ends what takes too long. To be called several times a second."""
        self._nuisances = max(0.0, self._nuisances - bounds.FORGIVEN_A_SECOND / 4)
        deadlines = (self._head_deadline, self._write_deadline)
        if any(deadline is not None and now > deadline for deadline in deadlines) or self._pings.is_dead(now):
            self.abort()
            return
        for call in list(self.calls.values()):
            if call.is_arriving and now - call.started > self.limits.body_time:
                call.fail(too_slow("the message arrives too slowly"))
            elif call.waits and now - call.started > self.limits.body_time + self.limits.write_time:
                self._give_up(call)
        if self._pings.is_due(now):
            self.write(frame(PING, 0, 0, bytes(8)))
        self._retire(now)

    def _retire(self, now: float) -> None:
        limits = self.limits
        idle = limits.idle_time and not self.calls and now - self.idle_since > limits.idle_time
        if idle or (limits.age and now - self._opened_at > limits.age):
            self.go_away()
        if self._going_since is not None and limits.age_grace and now - self._going_since > limits.age_grace:
            self.close()

    def refuse_all(self) -> None:
        """The server ends: running calls get an answer that asks to try again."""
        for call in list(self.calls.values()):
            if call.task:
                call.task.cancel()
            call.fail(overloaded("the collector stops; send again"))

    def _give_up(self, call: Call) -> None:
        """The client waits for no answer."""
        if call.task:
            call.task.cancel()
        call.close()

    def _guard(self, call: Call, work: Callable[[], Any]) -> None:
        try:
            work()
        except Failure as failure:
            call.fail(failure)


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "the padding is longer than the frame")
    return payload[1 : len(payload) - payload[0]]
