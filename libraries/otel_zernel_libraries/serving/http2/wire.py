"""The encodings of HTTP/2 (RFC 9113), HPACK (RFC 7541) and gRPC, as far as a server of unary calls needs them.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

import base64
from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from struct import Struct
from typing import Final
from urllib.parse import quote

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 2, 3, 4, 5, 6
DEFAULT_WINDOW: Final = 65535
LARGEST_WINDOW: Final = 2**31 - 1
LEAST_FRAME: Final = 16384
"""Every peer accepts frames of this size."""
FRAME_SIZES: Final = {RST_STREAM: 4, PRIORITY: 5, PING: 8, WINDOW_UPDATE: 4}
"""Bytes of the frames of fixed size."""
UINT32: Final = Struct("!I")
SETTING: Final = Struct("!HI")
_FRAME: Final = Struct("!HBBBI")
_MESSAGE: Final = Struct("!BI")


class ErrorCode(IntEnum):
    """The reasons for ending a stream or a connection."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class ConnectionBroken(Exception):
    """The client violates the protocol or a limit. The connection ends with GOAWAY."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class StreamBroken(Exception):
    """The client violates the protocol on one stream, for example by a malformed request. The stream is reset."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    size = len(payload)
    return _FRAME.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


FRAME_HEAD: Final = _FRAME.size


def read_frame_head(data: bytes, position: int) -> tuple[int, int, int, int]:
    """The length, the kind, the flags and the stream of the frame that begins at `position`."""
    high, low, kind, flags, stream = _FRAME.unpack_from(data, position)
    return high << 8 | low, kind, flags, stream & LARGEST_WINDOW


def window_update(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, UINT32.pack(size))


def goaway(last_stream: int, code: ErrorCode, message: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, UINT32.pack(last_stream) + UINT32.pack(code) + message.encode())


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(name, value) for name, value in values.items()))


def message_of(content: bytes) -> bytes:
    """A message of gRPC with its prefix, uncompressed."""
    return _MESSAGE.pack(0, len(content)) + content


def read_prefix(data: bytes) -> tuple[int, int]:
    """The compression flag and the length of a message, from its first 5 bytes."""
    flag, size = _MESSAGE.unpack_from(data)
    return flag, size


def encode_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """A header block without the dynamic table: literals only, which are not indexed."""
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers)


def _text(value: str) -> bytes:
    encoded = value.encode("latin-1")
    size = len(encoded)
    if size < 127:
        return bytes((size,)) + encoded
    size -= 127
    rest = bytearray((127,))
    while size > 127:
        rest.append(size & 127 | 128)
        size >>= 7
    rest.append(size)
    return bytes(rest) + encoded


@cache
def response_headers() -> bytes:
    """The headers of an answer with a message."""
    return encode_headers(
        [(":status", "200"), ("content-type", "application/grpc"), ("grpc-accept-encoding", "gzip,deflate,zstd,snappy")]
    )


def trailers(code: int, message: str, details: bytes = b"") -> bytes:
    """The status of a call. `details` is an encoded `google.rpc.Status`."""
    headers = [("grpc-status", str(code))]
    if message:
        headers.append(("grpc-message", quote(message, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}~")))
    if details:
        headers.append(("grpc-status-details-bin", base64.b64encode(details).decode().rstrip("=")))
    return encode_headers(headers)
