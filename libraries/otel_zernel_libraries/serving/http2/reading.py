"""Reads what a client sends: frames, which are refused before they are complete if they are too long, their header
blocks (HPACK, RFC 7541) and settings.
"""

from typing import Final, Protocol

import hpack

from otel_zernel_libraries.serving.http2 import limits as bounds
from otel_zernel_libraries.serving.http2 import wire
from otel_zernel_libraries.serving.http2.wire import ConnectionBroken, ErrorCode, StreamBroken, read_frame_head


class FrameSink(Protocol):
    """Takes the frames of one connection. Every function may raise `ConnectionBroken`."""

    def check(self, kind: int, flags: int, stream: int) -> None:
        """A frame begins."""

    def handle(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """A whole frame has arrived, except for data."""

    def begin_body(self, stream: int, length: int, padding: int, *, ends: bool) -> None:
        """A frame begins with `length` bytes of data, and `padding` bytes that mean nothing but fill the windows."""

    def read_body(self, data: bytes) -> None:
        """Some of these bytes have arrived."""

    def end_body(self) -> None:
        """All of them have arrived."""


class FrameReader:
    """Reads the frames of one connection. Data is passed on as it arrives, without a copy if possible."""

    def __init__(self, sink: FrameSink) -> None:
        self._sink = sink
        self._rest = b""
        """Bytes of an unfinished frame."""
        self.has_preface = False
        """Whether the client has greeted in HTTP/2."""
        self._body_left = 0
        """Bytes of the current data frame that have not arrived."""
        self._padding_left = 0
        """Bytes of padding behind them."""

    def feed(self, data: bytes) -> None:
        """Reads the bytes that have arrived. Raises `ConnectionBroken`."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        position = 0 if self.has_preface else self._read_preface(data)
        if self.has_preface:
            position = self._read_all(data, position)
        if position < len(data):
            self._rest = data[position:]

    def _read_preface(self, data: bytes) -> int:
        if not wire.PREFACE.startswith(data[: len(wire.PREFACE)]):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "this port speaks gRPC over HTTP/2 only")
        self.has_preface = len(data) >= len(wire.PREFACE)
        return len(wire.PREFACE) if self.has_preface else 0

    def _read_all(self, data: bytes, position: int) -> int:
        """Reads frames, and parts of a body. The result is the position of the first frame that is not complete."""
        sink, end = self._sink, len(data)
        while position < end:
            if self._body_left:
                position = self._read_body(data, position, min(end - position, self._body_left))
                continue
            if self._padding_left:
                skipped = min(end - position, self._padding_left)
                self._padding_left -= skipped
                position += skipped
                continue
            begin = position + wire.FRAME_HEAD
            if begin > end:
                break
            length, kind, flags, stream = read_frame_head(data, position)
            if length > (bounds.FRAME if kind == wire.DATA else bounds.HEADER_BLOCK):
                raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes is too long")
            sink.check(kind, flags, stream)
            if kind == wire.DATA and not flags & wire.PADDED:
                self._begin_body(stream, length, 0, ends=bool(flags & wire.END_STREAM))
                position = begin
            elif kind == wire.DATA:
                if begin == end and length:  # the length of the padding has not arrived
                    break
                self._begin_padded_body(
                    stream, length, data[begin] if length else 0, ends=bool(flags & wire.END_STREAM)
                )
                position = begin + 1
            elif begin + length > end:
                break
            else:
                position = begin + length
                sink.handle(kind, flags, stream, data[begin:position])
        return position

    def _begin_padded_body(self, stream: int, length: int, padding: int, *, ends: bool) -> None:
        if padding >= length:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "the padding is longer than the frame")
        self._padding_left = padding
        self._begin_body(stream, length - 1 - padding, 1 + padding, ends=ends)

    def _begin_body(self, stream: int, length: int, padding: int, *, ends: bool) -> None:
        self._sink.begin_body(stream, length, padding, ends=ends)
        self._body_left = length
        if not length:
            self._sink.end_body()

    def _read_body(self, data: bytes, position: int, size: int) -> int:
        self._body_left -= size
        self._sink.read_body(data[position : position + size])
        if not self._body_left:
            self._sink.end_body()
        return position + size


Headers = dict[str, str]
_MOST_KNOWN: Final = 16
"""Header blocks that a connection remembers. A client repeats a few."""
_PSEUDO: Final = frozenset({":method", ":scheme", ":path", ":authority"})
_OF_HTTP1: Final = frozenset({"connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"})
_LONGEST_KNOWN: Final = 4096
"""Characters of remembered headers. A block of 10 bytes may stand for 32 KiB."""


class HeaderDecoder:
    """Decodes the header blocks of one connection.

    A client sends the same headers with most requests. Their block is then a few references into the table, and its
    meaning is remembered until a block changes the table.
    """

    def __init__(self) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=bounds.HEADER_BLOCK)
        self._known: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """The headers, with lower-case names. Several values of one name are joined.

        Raises `ConnectionBroken` if the block cannot be decoded, and `StreamBroken` if the request is malformed (RFC
        9113, 8.1.1).
        """
        if known := self._known.get(block):
            return known
        try:
            pairs = self._decoder.decode(block, raw=True)
        except hpack.OversizedHeaderListError as error:
            raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "the headers are too long") from error
        except (hpack.HPACKError, UnicodeDecodeError, ValueError, IndexError) as error:
            raise ConnectionBroken(ErrorCode.COMPRESSION_ERROR, "the header block is not valid") from error
        is_constant = _is_only_references(block)
        if not is_constant or len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        headers: Headers = {}
        for name, value in pairs:
            key, text = bytes(name).decode("latin-1"), bytes(value).decode("latin-1")
            if (problem := _problem(key, text, headers)) is not None:
                raise StreamBroken(ErrorCode.PROTOCOL_ERROR, problem)
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        if is_constant and sum(len(name) + len(value) for name, value in headers.items()) <= _LONGEST_KNOWN:
            self._known[block] = headers
        return headers


def _problem(name: str, value: str, before: Headers) -> str | None:
    """Why a header makes a request malformed (RFC 9113, 8.2 and 8.3), behind those in `before`."""
    if name.startswith(":"):
        if name not in _PSEUDO or name in before:
            return "a pseudo-header is unknown or repeated"
        if any(not name.startswith(":") for name in before):
            return "a pseudo-header follows other headers"
    elif not name or name != name.lower():
        return "the name of a header has upper-case letters, or is empty"
    elif name in _OF_HTTP1 or (name == "te" and value != "trailers"):
        return "a header belongs to connections of HTTP/1.1"
    return None


def _is_only_references(block: bytes) -> bool:
    """Whether every byte is a reference into the table, so that the block cannot change it."""
    return bool(block) and min(block) > 0x80 and max(block) < 0xFF


_PRIORITY: Final = 5
"""Bytes of a priority before the block."""
_REQUIRED: Final = (":method", ":scheme", ":path")


class HeaderBlocks:
    """The header blocks of one connection, one after the other."""

    def __init__(self) -> None:
        self.stream = 0
        """The stream whose block is unfinished; 0 for none."""
        self.ends = False
        """Whether the stream ends with this block."""
        self._block = b""
        self._decoder = HeaderDecoder()

    def begin(self, flags: int, stream: int, payload: bytes) -> Headers | None:
        """HEADERS: the headers, or None if more frames follow. Raises `ConnectionBroken` and `StreamBroken`."""
        block = unpadded(payload) if flags & wire.PADDED else payload
        self._block = block[_PRIORITY:] if flags & wire.HAS_PRIORITY else block
        self.stream = stream
        self.ends = bool(flags & wire.END_STREAM)
        return self._finish(flags)

    def extend(self, flags: int, payload: bytes) -> Headers | None:
        """CONTINUATION: the same."""
        if not self.stream:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._block += payload
        if len(self._block) > bounds.HEADER_BLOCK:
            raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "the headers are too long")
        return self._finish(flags)

    def are_trailers(self, headers: Headers) -> bool:
        """Whether the headers of the block that was just read are the trailers of a request."""
        return self.ends and not any(name.startswith(":") for name in headers)

    def _finish(self, flags: int) -> Headers | None:
        if not flags & wire.END_HEADERS:
            return None
        block, self._block, self.stream = self._block, b"", 0
        return self._decoder.decode(block)


def unpadded(payload: bytes) -> bytes:
    """The payload of a padded frame. Raises `ConnectionBroken` if the padding is longer than the frame."""
    if not payload or payload[0] >= len(payload):
        raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "the padding is longer than the frame")
    return payload[1 : len(payload) - payload[0]]


def check_request(headers: Headers) -> None:
    """Raises `StreamBroken` if the headers of a request lack one that is required."""
    if not all(map(headers.get, _REQUIRED)):
        raise StreamBroken(ErrorCode.PROTOCOL_ERROR, f"a request lacks one of {', '.join(_REQUIRED)}")


_VALUES: Final = {wire.ENABLE_PUSH: range(2), wire.MAX_FRAME_SIZE: range(wire.LEAST_FRAME, 2**24)}
"""The valid values of settings (6.5.2). The window's size is checked where it is used; for the others, any is valid."""
_WRONG_SIZE: Final = "SETTINGS has a wrong size"


def check_acknowledgement(payload: bytes) -> None:
    """Raises `ConnectionBroken` if an acknowledgement has a payload."""
    if payload:
        raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, _WRONG_SIZE)


def initial_window(payload: bytes) -> int | None:
    """The initial window of streams, if the frame sets it. Raises `ConnectionBroken` for invalid settings."""
    if len(payload) % wire.SETTING.size:
        raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, _WRONG_SIZE)
    window = None
    for name, value in wire.SETTING.iter_unpack(payload):
        if value not in _VALUES.get(name, (value,)):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"the setting {name} has the value {value}")
        if name == wire.INITIAL_WINDOW_SIZE:
            window = value
    return window
