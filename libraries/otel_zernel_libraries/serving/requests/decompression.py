"""Decompresses bodies, and stops at a limit: a few kB may contain 10 GB of zeros."""

import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_zernel_libraries.extras import missing_packages
from otel_zernel_libraries.serving.requests.failures import RequestFailure, too_large, undecodable, unsupported
from otel_zernel_libraries.zstd import ZstdDecompressor, ZstdError, decompressor

_WINDOW_LOG: Final = 23
"""The largest window of zstd: 8 MiB, as RFC 9659 requires for HTTP."""
_PIECE: Final = 64 << 10
"""Bytes of zstd at a time: at the end of each frame, the rest of a piece is copied."""
_MOST_FRAMES: Final = 10_000
"""Frames of a zstd body. A new one takes 10 us."""

_MOST_MEMBERS: Final = 100
"""Parts of a gzip body. A million empty ones in 20 MiB would take minutes."""

Decompress = Callable[[bytes, int], bytes]
"""Returns at most the limit of bytes and one more. Raises `_Damaged` or `_TooLarge`."""


class _Damaged(Exception):
    """The body is not in this encoding."""


class _TooLarge(Exception):
    """The body has more bytes than the limit."""


def decompress(encoding: str, body: bytes, limit: int, key: str) -> bytes:
    """The body without its compression. Raises `RequestFailure` if it is damaged, or larger than `limit` bytes.

    `key` is the configuration key of the limit.
    """
    try:
        plain = _DECOMPRESSORS[encoding](body, limit)
    except _Damaged as error:
        raise undecodable(f"the body is not valid {encoding}: {error}") from error
    except _TooLarge as error:
        raise body_too_large(limit, key) from error
    if len(plain) > limit:
        raise body_too_large(limit, key)
    return plain


def body_too_large(limit: int, key: str) -> RequestFailure:
    """The body exceeds a limit."""
    return too_large(f"the body is larger than {key} ({limit} bytes)")


def _inflate(body: bytes, limit: int, window: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while body and size <= limit:  # gzip may have several members
        if len(parts) >= _MOST_MEMBERS:
            raise _Damaged(f"it has more than {_MOST_MEMBERS} members")
        decompressor = zlib.decompressobj(window)
        try:
            part = decompressor.decompress(body, limit + 1 - size)
        except zlib.error as error:
            raise _Damaged(str(error)) from error
        parts.append(part)
        size += len(part)
        if not decompressor.eof:
            if size <= limit:
                raise _Damaged("it ends early")
            break
        body = decompressor.unused_data
    return b"".join(parts)


def _gzip(body: bytes, limit: int) -> bytes:
    return _inflate(body, limit, 31)


def _zlib(body: bytes, limit: int) -> bytes:
    return _inflate(body, limit, 15)


def _zstd(body: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    size = frames = 0
    frame: ZstdDecompressor | None = None
    for start in range(0, len(body), _PIECE):
        piece = body[start : start + _PIECE]
        while piece:
            if frame is None or frame.eof:
                if (frames := frames + 1) > _MOST_FRAMES:
                    raise _Damaged(f"it has more than {_MOST_FRAMES} frames")
                frame = decompressor(_WINDOW_LOG)
            try:
                part = frame.decompress(piece, limit + 1 - size)
            except ZstdError as error:
                raise _Damaged(str(error)) from error
            parts.append(part)
            size += len(part)
            if size > limit:
                return b"".join(parts)
            piece = frame.unused_data
    if frame and not frame.eof:
        raise _Damaged("it ends early")
    return b"".join(parts)


def _cramjam() -> Any:
    """The optional package. Raises `RequestFailure` if it is missing."""
    if lack := missing_packages("a body in snappy or lz4", "cramjam"):
        raise unsupported(lack)
    import cramjam

    return cramjam


_FRAMED: Final = b"\xff\x06\0\0sNaPpY"
"""The first bytes of snappy's framing format. OTLP over gRPC has it, and HTTP has bare blocks."""


def _snappy(body: bytes, limit: int) -> bytes:
    cramjam = _cramjam()
    if not body:
        return b""  # no block at all
    if body.startswith(_FRAMED):
        return _filled(cramjam, cramjam.snappy.decompress_into, body, limit)
    try:
        if cramjam.snappy.decompress_raw_len(body) > limit:
            raise _TooLarge
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise _Damaged(str(error)) from error


def _lz4(body: bytes, limit: int) -> bytes:
    cramjam = _cramjam()
    return _filled(cramjam, cramjam.lz4.decompress_into, body, limit)


def _filled(cramjam: Any, decompress_into: Callable[[bytes, bytearray], int], body: bytes, limit: int) -> bytes:
    """The content, in a buffer that grows up to the limit: neither format is bounded otherwise."""
    size = min(limit, max(_PIECE, 4 * len(body)))
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: decompress_into(body, buffer)])
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise _Damaged(str(error)) from error
        if size >= limit:
            raise _TooLarge
        size = min(limit, 4 * size)


_DECOMPRESSORS: Final[Mapping[str, Decompress]] = {
    "gzip": _gzip,
    "zlib": _zlib,
    "deflate": _zlib,  # RFC 9110 names the zlib format so
    "zstd": _zstd,
    "snappy": _snappy,
    "x-snappy-framed": _snappy,
    "lz4": _lz4,
}
