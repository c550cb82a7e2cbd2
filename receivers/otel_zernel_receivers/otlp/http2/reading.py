"""Splits what a client sends into frames, and refuses those that are too long before they are complete."""

from typing import Protocol

from otel_zernel_receivers.otlp.http2 import limits as bounds
from otel_zernel_receivers.otlp.http2.wire import (
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
        """A whole frame has arrived, except for data without padding."""

    def begin_body(self, stream: int, length: int, *, ends: bool) -> None:
        """A frame with `length` bytes of data begins."""

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
        self._has_preface = False
        self._body_left = 0
        """Bytes of the current data frame that have not arrived."""

    def feed(self, data: bytes) -> None:
        """Reads what has arrived. Raises `ConnectionBroken`."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        position = 0 if self._has_preface else self._read_preface(data)
        if self._has_preface:
            position = self._read_all(data, position)
        if position < len(data):
            self._rest = data[position:]

    def _read_preface(self, data: bytes) -> int:
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "this port speaks gRPC over HTTP/2 only")
        self._has_preface = len(data) >= len(PREFACE)
        return len(PREFACE) if self._has_preface else 0

    def _read_all(self, data: bytes, position: int) -> int:
        """Reads frames, and parts of a body. The result is the position of the first frame that is not complete."""
        sink, end = self._sink, len(data)
        while position < end:
            if self._body_left:
                position = self._read_body(data, position, min(end - position, self._body_left))
                continue
            begin = position + FRAME_HEAD
            if begin > end:
                break
            length, kind, flags, stream = read_frame_head(data, position)
            is_body = kind == DATA and not flags & PADDED
            if length > (bounds.FRAME if is_body else bounds.HEADER_BLOCK):
                raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes is too long")
            sink.check(kind, flags, stream)
            if is_body:
                self._begin_body(stream, length, ends=bool(flags & END_STREAM))
                position = begin
            elif begin + length > end:
                break
            else:
                position = begin + length
                sink.handle(kind, flags, stream, data[begin:position])
        return position

    def _begin_body(self, stream: int, length: int, *, ends: bool) -> None:
        self._sink.begin_body(stream, length, ends=ends)
        self._body_left = length
        if not length:
            self._sink.end_body()

    def _read_body(self, data: bytes, position: int, size: int) -> int:
        self._body_left -= size
        self._sink.read_body(data[position : position + size])
        if not self._body_left:
            self._sink.end_body()
        return position + size
