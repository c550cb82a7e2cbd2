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
        while self._has_preface and (after := self._read_one(data, position)) is not None:
            position = after
        self._rest = data[position:]

    def _read_preface(self, data: bytes) -> int:
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "this port speaks gRPC over HTTP/2 only")
        self._has_preface = len(data) >= len(PREFACE)
        return len(PREFACE) if self._has_preface else 0

    def _read_one(self, data: bytes, position: int) -> int | None:
        """Reads one frame, or a part of a body. The result is the position behind it; None if bytes are missing."""
        left = len(data) - position
        if self._body_left:
            return self._read_body(data, position, min(left, self._body_left)) if left else None
        if left < FRAME_HEAD:
            return None
        length, kind, flags, stream = read_frame_head(data, position)
        is_body = kind == DATA and not flags & PADDED
        self._check(length, bounds.FRAME if is_body else bounds.HEADER_BLOCK)
        self._sink.check(kind, flags, stream)
        position += FRAME_HEAD
        if is_body:
            self._begin_body(stream, length, ends=bool(flags & END_STREAM))
            return position
        if left - FRAME_HEAD < length:
            return None
        self._sink.handle(kind, flags, stream, data[position : position + length])
        return position + length

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

    def _check(self, length: int, longest: int) -> None:
        if length > longest:
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes is too long")
