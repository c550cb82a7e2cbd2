"""Decompresses bodies, and stops at a limit: a few kB may contain 10 GB of zeros."""

import zlib
from collections.abc import Callable, Mapping
from typing import Final

from otel_zernel_libraries.serving.requests.failures import RequestFailure, too_large, undecodable
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
"""Returns at most the limit of bytes and one more. Raises `_Damaged`."""


class _Damaged(Exception):
    """The body is not in this encoding."""


def decompress(encoding: str, body: bytes, limit: int, key: str) -> bytes:
    """The body without its compression. Raises `RequestFailure` if it is damaged, or larger than `limit` bytes.

    `key` is the configuration key of the limit.
    """
    try:
        plain = _DECOMPRESSORS[encoding](body, limit)
    except _Damaged as error:
        raise undecodable(f"the body is not valid {encoding}: {error}") from error
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


_DECOMPRESSORS: Final[Mapping[str, Decompress]] = {
    "gzip": _gzip,
    "zlib": _zlib,
    "deflate": _zlib,  # RFC 9110 names the zlib format so
    "zstd": _zstd,
}
