"""Header blocks, which may arrive in several frames."""

from typing import Final

from otel_zernel_libraries.serving.http2.limits import HEADER_BLOCK
from otel_zernel_libraries.serving.http2.wire import (
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    PADDED,
    ConnectionBroken,
    ErrorCode,
    HeaderDecoder,
    Headers,
    StreamBroken,
)

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
        block = unpadded(payload) if flags & PADDED else payload
        self._block = block[_PRIORITY:] if flags & HAS_PRIORITY else block
        self.stream, self.ends = stream, bool(flags & END_STREAM)
        return self._finish(flags)

    def extend(self, flags: int, payload: bytes) -> Headers | None:
        """CONTINUATION: the same."""
        if not self.stream:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._block += payload
        if len(self._block) > HEADER_BLOCK:
            raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "the headers are too long")
        return self._finish(flags)

    def are_trailers(self, headers: Headers) -> bool:
        """Whether the headers of the block that was just read are the trailers of a request."""
        return self.ends and not any(name.startswith(":") for name in headers)

    def _finish(self, flags: int) -> Headers | None:
        if not flags & END_HEADERS:
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
