"""How an answer is sent: its validator, its life in caches, and its compression."""

import gzip
import hashlib
from dataclasses import dataclass
from typing import Any, Final

import zstandard

from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.serving.api.answers import plain_answer

_SMALL: Final = 1024
"""Bytes below which compression gains nothing."""
_LARGE: Final = 1 << 17
"""Bytes above which compression takes milliseconds, so that it runs in a thread."""
_DAY_NS: Final = 86_400 * 10**9
_SETTLED_NS: Final = 3600 * 10**9


@dataclass(slots=True, frozen=True)
class AnswerConditions:
    """The conditions of one request."""

    tag: str
    """The validator: it changes with every batch that the store takes."""
    encoding: str
    """`zstd`, `gzip` or empty."""
    cache: str
    """Cache-Control."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"etag", self.tag.encode()),
            (b"cache-control", self.cache.encode()),
            (b"vary", b"accept, accept-encoding, authorization"),
        ]

    def is_known(self, header: str) -> bool:
        """Whether `If-None-Match` has the validator."""
        tags = [one.strip() for one in header.split(",")]
        return self.tag in tags or "*" in tags

    async def not_modified(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": 304, "headers": self.headers})
        await send({"type": "http.response.body", "body": b""})

    async def answer(self, send: Any, body: bytes, content_type: str, more: list[tuple[bytes, bytes]]) -> None:
        headers = [*self.headers, *more]
        if self.encoding and len(body) > _SMALL:
            headers.append((b"content-encoding", self.encoding.encode()))
            body = await self._compressed(body)
        await plain_answer(send, body, content_type, 200, headers)

    async def _compressed(self, body: bytes) -> bytes:
        compress = zstandard.ZstdCompressor(3).compress if self.encoding == "zstd" else _gzip
        return await run_in_thread(lambda: compress(body)) if len(body) > _LARGE else compress(body)


def delivery_of(
    scope: Any, accepted: str, accepted_encodings: str, version: str, end_ns: int, now_ns: int
) -> AnswerConditions:
    """The conditions of a request. `version` changes with each batch in the store."""
    encoding = chosen_encoding(accepted_encodings)
    text = f"{version} {scope['path']} {scope['query_string'].decode('latin-1')} {accepted} {encoding}"
    tag = f'"{hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]}"'
    return AnswerConditions(tag, encoding, cache_control(end_ns, now_ns))


def cache_control(end_ns: int, now_ns: int) -> str:
    """How long a cache may keep an answer without asking. Points may arrive late, so that only old times settle."""
    age = now_ns - end_ns
    if age < _SETTLED_NS:
        return "private, no-cache"
    return f"private, max-age={3600 if age >= _DAY_NS else 60}"


def chosen_encoding(header: str) -> str:
    """The best encoding that `Accept-Encoding` allows."""
    allowed = {}
    for part in header.lower().split(",")[:50]:
        name, _, quality = part.strip().partition(";")
        allowed[name.strip()] = quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return next((one for one in ("zstd", "gzip") if allowed.get(one)), "")


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, 5, mtime=0)
