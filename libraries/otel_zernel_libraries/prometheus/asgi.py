"""The ASGI application that serves a page at `/metrics`, and `ok` at `/health`."""

import asyncio
import gzip
from collections.abc import Callable
from typing import Any

from otel_zernel_libraries.prometheus.formats import Format, accepts_gzip, negotiate
from otel_zernel_libraries.serving.access import joined_headers
from otel_zernel_libraries.serving.api.routes import App

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

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await page_answer(scope, send, *await respond(scope))

    async def respond(scope: Any) -> tuple[int, bytes, list[Header]]:
        if scope["path"] not in ("/metrics", "/health"):
            return 404, b"not found; the metrics are at /metrics\n", [_PLAIN_TEXT]
        if scope["method"] not in ("GET", "HEAD"):
            return 405, b"method not allowed; use GET or HEAD\n", [_PLAIN_TEXT, (b"allow", b"GET, HEAD")]
        if scope["path"] == "/health":
            return 200, b"ok", [_PLAIN_TEXT]
        headers = joined_headers(scope["headers"])
        return await asyncio.to_thread(page, headers.get("accept", ""), headers.get("accept-encoding", ""))

    def page(accept: str, accept_encoding: str) -> tuple[int, bytes, list[Header]]:
        format_ = negotiate(accept, openmetrics=openmetrics)
        body = render(format_)
        headers = [(b"content-type", format_.content_type.encode())]
        if len(body) > _SMALLEST_COMPRESSED and accepts_gzip(accept_encoding):
            return 200, gzip.compress(body, 1), [*headers, (b"content-encoding", b"gzip")]
        return 200, body, headers

    return app


async def page_answer(scope: Any, send: Any, status: int, body: bytes, headers: list[Header]) -> None:
    """Answers with a page, in pieces; HEAD gets its length."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    sent_length = 0 if scope["method"] == "HEAD" else len(body)
    for start in range(0, sent_length, _CHUNK):
        await send({"type": "http.response.body", "body": body[start : start + _CHUNK], "more_body": True})
    await send({"type": "http.response.body"})
