"""One call: a stream of HTTP/2 whose messages are those of gRPC."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from otel_zernel_libraries.serving.http2 import wire
from otel_zernel_libraries.serving.http2.limits import FORGIVEN_A_REQUEST, UNREAD, Http2Limits, Nuisances, Pings
from otel_zernel_libraries.serving.http2.wire import (
    ErrorCode,
    frame,
    message_of,
    read_prefix,
    response_headers,
    trailers,
    window_update,
)
from otel_zernel_libraries.serving.requests.failures import RequestFailure, overloaded, too_large, undecodable
from otel_zernel_libraries.serving.requests.room import Hold, Room

_PREFIX = 5
"""Bytes before a message: its compression flag and its length."""
_SUCCESS = trailers(0, "")
"""The trailers of a call that succeeds."""
_FRAMES = (
    frame(wire.HEADERS, wire.END_HEADERS, 0, response_headers()),
    frame(wire.DATA, 0, 0, message_of(b"")),
    frame(wire.HEADERS, wire.END_STREAM | wire.END_HEADERS, 0, _SUCCESS),
)
_EMPTY_SUCCESS = b"".join(frame_[:5] + b"\xff" * 4 + frame_[wire.FRAME_HEAD :] for frame_ in _FRAMES).split(b"\xff" * 4)
"""The usual answer, an empty message and success: the id of the stream belongs between the pieces."""


def refusal(stream: int, failure: RequestFailure, *, half_closed: bool) -> bytes:
    """The frames that end a call before any answer."""
    end = frame(wire.HEADERS, wire.END_STREAM | wire.END_HEADERS, stream, response_headers() + _status_of(failure))
    return end if half_closed else end + _stop(stream)


def _status_of(failure: RequestFailure) -> bytes:
    """The trailers of a call that fails."""
    details = failure.as_status().SerializeToString() if failure.retry_after is not None else b""
    return trailers(failure.code, str(failure), details)


def _stop(stream: int) -> bytes:
    """After an early answer: the client need not send the rest."""
    return frame(wire.RST_STREAM, 0, stream, wire.UINT32.pack(ErrorCode.NO_ERROR))


class Peer:
    """A client, from its connection to its end. It outlives the connection for those who remember the client."""

    __slots__ = ("address", "certificate", "closed")

    def __init__(self, address: str = "", certificate: str = "") -> None:
        self.address = address
        """The IP address. Empty for a Unix socket."""
        self.certificate = certificate
        """The names in the client's verified certificate. Empty without one."""
        self.closed = False

    def meet(self, transport: asyncio.BaseTransport) -> None:
        """Reads address and certificate after the handshake."""
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.address = str(name[0])
        if certificate := transport.get_extra_info("peercert"):  # empty if it was not verified
            self.certificate = repr((certificate.get("subject"), certificate.get("subjectAltName")))


class CallConnection(Protocol):
    """The connection's streams, as its calls see them."""

    write: Callable[[bytes], None]
    """Sends frames."""
    unread: Callable[[], int]
    """Bytes that were written, and that wait for the client to read."""
    later: Callable[[Callable[[], None]], None]
    """Calls a function after everything that was read is handled. The function must not raise."""
    queued: int
    """Bytes of answers that wait for the client's windows."""
    limits: Http2Limits
    room: Room
    now: Callable[[], float]
    send_window: int
    initial_send_window: int
    pings: Pings
    nuisances: Nuisances
    peer: Peer

    def forget(self, call: "Call") -> None:
        """The call is answered."""


class Method(Protocol):
    """Answers the calls of one method. Every function may raise `RequestFailure`, which ends the call."""

    streams: bool
    """Whether `received` is called for each message. Else there is one message, and it is complete."""

    def begin(self, call: "Call") -> None:
        """The headers have arrived, and nothing else was read."""

    def received(self, call: "Call", message: bytes) -> None:
        """A message has arrived; it is decompressed only if `call.encoding` is empty."""

    def ended(self, call: "Call") -> None:
        """The client sends no more messages."""

    def failed(self, failure: RequestFailure) -> None:
        """A call ends with an error, which may arise while its message arrives. Must not raise."""


Route = Callable[[Mapping[str, str]], Method]
"""Finds the method of a call by its headers. Raises `RequestFailure`."""


class Call:
    """A running call. The connection feeds it; its method answers."""

    __slots__ = (
        "_answers",
        "_begun",
        "_connection",
        "_consumed",
        "_is_compressed",
        "_needed",
        "_parts",
        "_size",
        "closed",
        "encoding",
        "half_closed",
        "headers",
        "hold",
        "id",
        "later",
        "method",
        "peer",
        "send_window",
        "started",
        "task",
        "waits",
    )

    def __init__(self, id_: int, headers: Mapping[str, str], method: Method, connection: "CallConnection") -> None:
        self.id = id_
        self.headers = headers
        self.method = method
        self.peer = connection.peer
        self.hold: Hold = connection.room.take(self.fail)
        self.started = connection.now()
        self.later = connection.later
        self.encoding = ""
        """The compression of the message that is being delivered."""
        self.task: asyncio.Task[None] | None = None
        """Work for the call. It is cancelled if the client gives up."""
        self.send_window = connection.initial_send_window
        self.half_closed = False
        """Whether the client sends no more."""
        self.closed = False
        self.waits = False
        """Whether an answer waits for the client's window."""
        self._connection = connection
        self._answers: deque[tuple[bytes, bytes | None]] = deque()
        """What waits for the client's window: data, and the trailers behind them."""
        self._begun = False
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self._consumed = 0
        """Bytes of a stream that the client's window lacks."""
        self._needed = 0
        """Length of the message that is arriving; meaningful once its prefix was read."""
        self._is_compressed = -1
        """1 or 0; -1 until the prefix was read."""

    def feed(self, data: bytes) -> None:
        """More bytes of the body. Raises `RequestFailure`."""
        self.hold.add(len(data))
        self._parts.append(data)
        self._size += len(data)
        self._read_prefix()
        if self.method.streams:
            self._give_window_back(len(data))
            self._deliver_messages()
        elif self._is_compressed >= 0 and self._size > self._needed:
            raise undecodable("the request has several messages")

    def end(self) -> None:
        """The client has sent everything. Raises `RequestFailure`."""
        self.half_closed = True
        self.hold.arrived()
        if not self.method.streams:
            if self._is_compressed < 0 or self._size < self._needed:
                raise undecodable("the request ends before its message does")
            message = b"".join(self._parts)
            self._parts = []
            self.encoding = self.headers.get("grpc-encoding", "identity") if self._is_compressed else ""
            self.method.received(self, message)
        self.method.ended(self)

    def _read_prefix(self) -> None:
        if self._is_compressed >= 0 or self._size < _PREFIX:
            return
        whole = b"".join(self._parts)
        self._take_prefix(whole)
        self._parts, self._size = [memoryview(whole)[_PREFIX:]], self._size - _PREFIX

    def _take_prefix(self, data: bytes) -> None:
        self._is_compressed, self._needed = read_prefix(data)
        if self._needed > (limit := self._connection.limits.message):
            raise too_large(f"the message has {self._needed} bytes; max_recv_msg_size_mib allows {limit}")

    def _give_window_back(self, size: int) -> None:
        """Lets the client send on: the window of a stream has room for one message, and a stream has many."""
        self._consumed += size
        if self._consumed > wire.DEFAULT_WINDOW // 2 and not self.half_closed:
            self._connection.write(window_update(self.id, self._consumed))
            self._consumed = 0

    def _deliver_messages(self) -> None:
        """Delivers the messages of a stream that are complete. Thousands of small ones may arrive at once."""
        if self._is_compressed < 0 or self._size < self._needed:
            return
        whole, position = b"".join(self._parts), 0
        self._parts = []
        self._size = 0
        while self._is_compressed >= 0 and len(whole) - position >= self._needed and not self.closed:
            message = whole[position : position + self._needed]
            position += self._needed
            self.encoding = self.headers.get("grpc-encoding", "identity") if self._is_compressed else ""
            self._is_compressed = -1
            self.hold.shrink(_PREFIX + len(message))
            self._connection.nuisances.forgive(FORGIVEN_A_REQUEST)
            self.method.received(self, message)
            if len(whole) - position >= _PREFIX:
                self._take_prefix(whole[position : position + _PREFIX])
                position += _PREFIX
        if not self.closed:
            self._parts = [whole[position:]]
            self._size = len(whole) - position

    @property
    def is_arriving(self) -> bool:
        """Whether the client still sends a single message."""
        return not (self.half_closed or self.closed or self.method.streams)

    @property
    def is_busy(self) -> bool:
        """Whether a request arrives or is worked on. Else the call only waits: for a question, or for a change."""
        return not (self.method.streams or (self.half_closed and self.task is None))

    def send(self, message: bytes) -> None:
        """Answers with a message. Raises `RequestFailure` if the client does not read its answers."""
        if self._connection.queued + self._connection.unread() + len(message) > UNREAD:
            self._clear_answers()
            raise overloaded("the answers to this connection are not read")
        self._answer(message_of(message), None)
        self._connection.pings.answered()

    def succeed(self, message: bytes | None = None) -> None:
        """Ends the call with success, after one more message if it is given."""
        if message == b"" and self._may_answer_at_once():
            self._connection.send_window -= _PREFIX
            self._connection.write(wire.UINT32.pack(self.id).join(_EMPTY_SUCCESS))
            self.close()
            return
        self._answer(message_of(message) if message is not None else b"", _SUCCESS)

    def fail(self, failure: RequestFailure) -> None:
        """Ends the call with an error. Without an earlier message, that is one frame."""
        if self.closed:
            return
        self.method.failed(failure)
        if self._begun:
            self._answer(b"", _status_of(failure))
        else:
            self._begun = True
            self._connection.write(refusal(self.id, failure, half_closed=self.half_closed))
            self.close()

    def give_up(self) -> None:
        """The client waits for no answer."""
        if self.task:
            self.task.cancel()
        self.close()

    def close(self) -> None:
        """Forgets the call. Its answers are complete, or nobody waits for them."""
        if not self.closed:
            self.closed = True
            self._parts = []
            self._clear_answers()
            if self.task and self.task.cancelling():  # a thread may still work on the message
                self.hold.arrived()
                self.task.add_done_callback(lambda _: self.hold.give_back())
            else:
                self.hold.give_back()
            self._connection.forget(self)

    def _clear_answers(self) -> None:
        self._connection.queued -= sum(len(data) for data, _ in self._answers)
        self._answers.clear()

    def flush(self) -> None:
        """Writes as much as the client's window allows."""
        self.waits = False
        while self._answers and not self.closed:
            data, end = self._answers.popleft()
            self._connection.queued -= len(data)
            while data:
                size = min(len(data), wire.LEAST_FRAME, self.send_window, self._connection.send_window)
                if size <= 0:
                    self._answers.appendleft((data, end))
                    self._connection.queued += len(data)
                    self.waits = True
                    return
                self._connection.write(frame(wire.DATA, 0, self.id, data[:size]))
                self._connection.send_window -= size
                self.send_window -= size
                data = data[size:]
            if end is not None:
                reset = b"" if self.half_closed else _stop(self.id)
                self._connection.write(frame(wire.HEADERS, wire.END_STREAM | wire.END_HEADERS, self.id, end) + reset)
                self.close()

    def _may_answer_at_once(self) -> bool:
        """Whether nothing was sent, and the client's windows allow an empty message."""
        windows = min(self.send_window, self._connection.send_window)
        return self.half_closed and not (self._begun or self.closed) and windows >= _PREFIX

    def _answer(self, data: bytes, end: bytes | None) -> None:
        if self.closed:
            return
        if not self._begun:
            self._begun = True
            self._connection.write(frame(wire.HEADERS, wire.END_HEADERS, self.id, response_headers()))
        self._answers.append((data, end))
        self._connection.queued += len(data)
        self.flush()
