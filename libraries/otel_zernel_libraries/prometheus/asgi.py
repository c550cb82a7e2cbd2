"""The ASGI application that serves a page at `/metrics`, and `ok` at `/health`."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from otel_zernel_libraries.prometheus.formats import Format, accepts_gzip, negotiate

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

_SMALLEST_COMPRESSED = 1024
"""Bytes. Compressing a shorter page costs more than it saves."""
_CHUNK = 1 << 18
"""Bytes per write. A page of several megabytes, written at once, would block the event loop."""
_PLAIN_TEXT = (b"content-type", b"text/plain; charset=utf-8")


def metrics_app(render: Callable[[Format], bytes], *, openmetrics: bool = True) -> App:
    """Serves the bytes that `render` returns. `render` runs in a thread.

    If `openmetrics` is false, every scraper gets the Prometheus text format.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        status, body, headers = await respond(scope)
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        sent_length = 0 if scope["method"] == "HEAD" else len(body)
        for start in range(0, sent_length, _CHUNK):
            await send({"type": "http.response.body", "body": body[start : start + _CHUNK], "more_body": True})
        await send({"type": "http.response.body"})

    async def respond(scope: Scope) -> tuple[int, bytes, list[Header]]:
        if scope["path"] not in ("/metrics", "/health"):
            return 404, b"not found; the metrics are at /metrics\n", [_PLAIN_TEXT]
        if scope["method"] not in ("GET", "HEAD"):
            return 405, b"method not allowed; use GET or HEAD\n", [_PLAIN_TEXT, (b"allow", b"GET, HEAD")]
        if scope["path"] == "/health":
            return 200, b"ok", [_PLAIN_TEXT]
        headers = _joined_headers(scope["headers"])
        return await asyncio.to_thread(page, headers.get(b"accept", ""), headers.get(b"accept-encoding", ""))

    def page(accept: str, accept_encoding: str) -> tuple[int, bytes, list[Header]]:
        format_ = negotiate(accept, openmetrics=openmetrics)
        body = render(format_)
        headers = [(b"content-type", format_.content_type.encode())]
        if len(body) > _SMALLEST_COMPRESSED and accepts_gzip(accept_encoding):
            return 200, gzip.compress(body, 1), [*headers, (b"content-encoding", b"gzip")]
        return 200, body, headers

    return app


def _joined_headers(headers: list[Header]) -> dict[bytes, str]:
    """The request's headers by name. Repeated headers are joined by commas (RFC 9110, 5.3)."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value)
    return {name: b",".join(found).decode("latin-1") for name, found in values.items()}
