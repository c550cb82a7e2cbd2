"""Splits what a client sends into frames, and refuses those that are too long before they are complete."""

from typing import Protocol

from otel_zernel_libraries.serving.http2 import limits as bounds
from otel_zernel_libraries.serving.http2.wire import (
    DATA,
    END_STREAM,
    FRAME_HEAD,
    PADDED,
    PREFACE,
    ConnectionBroken,
    ErrorCode,
    read_frame_head,
)


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
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "this port speaks gRPC over HTTP/2 only")
        self.has_preface = len(data) >= len(PREFACE)
        return len(PREFACE) if self.has_preface else 0

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
            begin = position + FRAME_HEAD
            if begin > end:
                break
            length, kind, flags, stream = read_frame_head(data, position)
            if length > (bounds.FRAME if kind == DATA else bounds.HEADER_BLOCK):
                raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes is too long")
            sink.check(kind, flags, stream)
            if kind == DATA and not flags & PADDED:
                self._begin_body(stream, length, 0, ends=bool(flags & END_STREAM))
                position = begin
            elif kind == DATA:
                if begin == end and length:  # the length of the padding has not arrived
                    break
                self._begin_padded_body(stream, length, data[begin] if length else 0, ends=bool(flags & END_STREAM))
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
