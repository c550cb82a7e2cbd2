"""Decompresses bodies, and stops at a limit: a few kB may contain 10 GB of zeros."""

import zlib
from collections.abc import Callable, Mapping
from typing import Final

import zstandard

from otel_zernel_libraries.serving.requests.failures import RequestFailure, too_large, undecodable

_WINDOW: Final = 8 << 20
"""The largest window of zstd in bytes: 8 MiB, as RFC 9659 requires for HTTP."""

_MOST_MEMBERS: Final = 100
"""Parts of a gzip body. A million empty ones in 20 MiB would take minutes."""
_END: Final = zstandard.ZstdCompressor(write_checksum=True).compress(_MARK := b"end of the body")
"""A frame behind the body. If the body is cut off, zstandard reports no error, but does not find this frame either."""

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
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    try:
        reader = decompressor.stream_reader(body + _END, read_across_frames=True)
        plain = reader.read(limit + 1 + len(_MARK))
    except zstandard.ZstdError as error:
        raise _Damaged(str(error)) from error
    if len(plain) > limit + len(_MARK):
        return plain
    if not plain.endswith(_MARK):
        raise _Damaged("it ends early")
    return plain[: -len(_MARK)]


_DECOMPRESSORS: Final[Mapping[str, Decompress]] = {
    "gzip": _gzip,
    "zlib": _zlib,
    "deflate": _zlib,  # RFC 9110 names the zlib format so
    "zstd": _zstd,
}
