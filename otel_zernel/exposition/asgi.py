"""The HTTP application of a page, plain ASGI: `/metrics` and `/health`."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from otel_zernel.exposition.formats import Format, accepts_gzip, negotiate

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

_SMALL = 1024
"""Bytes up to which compression costs more than it saves."""
_CHUNK = 1 << 18
"""Bytes written at once, so that a page of megabytes does not hold up the loop."""
_PLAIN = (b"content-type", b"text/plain; charset=utf-8")


def metrics_app(render: Callable[[Format], bytes], *, openmetrics: bool = True) -> App:
    """Serves what `render` makes, which is called in a thread. `openmetrics` says if that format is on offer."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        status, body, headers = await respond(scope)
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        sent = 0 if scope["method"] == "HEAD" else len(body)
        for at in range(0, sent, _CHUNK):
            await send({"type": "http.response.body", "body": body[at : at + _CHUNK], "more_body": True})
        await send({"type": "http.response.body"})

    async def respond(scope: Scope) -> tuple[int, bytes, list[Header]]:
        if scope["path"] not in ("/metrics", "/health"):
            return 404, b"not found; the metrics are at /metrics\n", [_PLAIN]
        if scope["method"] not in ("GET", "HEAD"):
            return 405, b"GET or HEAD only\n", [_PLAIN, (b"allow", b"GET, HEAD")]
        if scope["path"] == "/health":
            return 200, b"ok", [_PLAIN]
        asked: dict[bytes, str] = {}
        for name, value in scope["headers"]:
            text = value.decode("latin-1")
            asked[name] = f"{asked[name]},{text}" if name in asked else text
        return await asyncio.to_thread(page, asked.get(b"accept", ""), asked.get(b"accept-encoding", ""))

    def page(accept: str, accept_encoding: str) -> tuple[int, bytes, list[Header]]:
        format_ = negotiate(accept, openmetrics=openmetrics)
        body = render(format_)
        headers = [(b"content-type", format_.content_type.encode())]
        if len(body) > _SMALL and accepts_gzip(accept_encoding):
            return 200, gzip.compress(body, 1), [*headers, (b"content-encoding", b"gzip")]
        return 200, body, headers

    return app
