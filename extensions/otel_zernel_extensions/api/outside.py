"""The outermost ASGI application: headers of every answer, preflight requests of browsers, metrics."""

from typing import Any, Final

from otel_zernel_extensions.api.measuring import MeasuredRequest, RequestMetrics
from otel_zernel_libraries.serving.access import joined_headers
from otel_zernel_libraries.serving.api.answers import plain_answer
from otel_zernel_libraries.serving.api.routes import App
from otel_zernel_libraries.serving.cors import Cors

_HEADERS: Final = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cache-control": b"no-store",
}
"""A route may send others. Everything of a page comes from this server, and no other site may embed it."""


class Outside:
    """Wraps the routes."""

    def __init__(self, inside: App, cors: Cors, metrics: RequestMetrics) -> None:
        self._inside = inside
        self._cors = cors
        self._metrics = metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = joined_headers(scope["headers"])
        request = self._metrics.begun(scope)
        shared = {name.encode(): value.encode("latin-1") for name, value in self._cors.headers(headers).items()}
        if b"access-control-allow-origin" in shared:
            shared[b"cross-origin-resource-policy"] = b"cross-origin"

        async def answer(message: Any) -> None:
            await send(_with_headers(message, shared, request))

        try:
            preflight = self._cors.preflight(headers) if scope.get("method") == "OPTIONS" else None
            if preflight is None:
                await self._inside(scope, receive, answer)
            else:
                fields = [(name.encode(), value.encode("latin-1")) for name, value in preflight.items()]
                await plain_answer(answer, b"", "text/plain", 204, fields)
        finally:
            request.ended()


def _with_headers(message: Any, shared: dict[bytes, bytes], request: MeasuredRequest) -> Any:
    """The message with the headers that an answer has not by itself."""
    kind = message["type"]
    if kind == "websocket.accept":
        request.answered(101, {})
    if kind not in ("http.response.start", "websocket.http.response.start"):
        return message
    own = [(name.lower(), value) for name, value in message.get("headers", ())]
    request.answered(message["status"], dict(own))
    names = {name for name, _ in own}
    added = [(name, value) for name, value in {**_HEADERS, **shared}.items() if name not in names]
    return {**message, "headers": [*own, *added]}
