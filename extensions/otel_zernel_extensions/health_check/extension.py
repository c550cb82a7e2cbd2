"""The HTTP server of the health_check extension."""

import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from otel_zernel.component import Context, Extension
from otel_zernel.net.guarding import serve_guarded
from otel_zernel.text import visible, without_secrets
from otel_zernel.types import Address
from otel_zernel_extensions.health_check.config import HealthCheckConfig

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class HealthCheckExtension(Extension):
    """Answers 200 while the collector runs, and 503 while it starts or stops, or if an exporter fails too long."""

    Config = HealthCheckConfig
    stability = "beta"

    def __init__(self, config: HealthCheckConfig, context: Context) -> None:
        super().__init__(config, context)
        self.address: Address | None = None
        """The address that it listens on, while it is entered."""
        self._serving = AsyncExitStack()

    async def __aenter__(self) -> Self:
        tls, auth = self.config.tls, self.config.auth
        server = serve_guarded(self._answer, self.config.endpoint, self.context, tls=tls, auth=auth)
        self.address = await self._serving.enter_async_context(server)
        scheme = "https" if tls else "http"
        self.context.logger.info("Serving health checks on %s://%s%s", scheme, self.address, self.config.path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._serving.aclose()

    async def _answer(self, request: dict[str, Any], receive: Receive, send: Send) -> None:
        """The ASGI application. A framework would cost 10 MB of memory for a single path."""
        status, body = self._respond(request["method"], request["path"])
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _respond(self, method: str, path: str) -> tuple[int, bytes]:
        if path != self.config.path:
            return 404, b'{"status":"Not found"}'
        if method not in ("GET", "HEAD"):
            return 405, b'{"status":"Method not allowed"}'
        return (200 if self._is_available() else 503), _json(self._state())

    def _is_available(self) -> bool:
        health, longest = self.context.health, self.config.unhealthy_after
        if health.up_since is None:
            return False
        return not longest or health.longest_outage(self.context.clock.monotonic()) < longest

    def _state(self) -> dict[str, Any]:
        health = self.context.health
        state: dict[str, Any] = {"status": "Server not available"}
        if health.up_since is not None:
            since = datetime.fromtimestamp(health.up_since, UTC)
            seconds = self.context.clock.time_ns() / 1e9 - health.up_since
            state = {
                "status": "Server available" if self._is_available() else "Server not available",
                "upSince": since.isoformat().replace("+00:00", "Z"),
                "uptime": go_duration(seconds),
            }
        if sentences := health.sentences(self.context.clock.monotonic()):
            state["components"] = {path: visible(without_secrets(text)) for path, text in sentences.items()}
        return state


def _json(state: dict[str, Any]) -> bytes:
    return json.dumps(state, ensure_ascii=False, separators=(",", ":")).encode()


def go_duration(seconds: float) -> str:
    """The duration in the notation of Go, in whole milliseconds: `1h0m2.5s`, `1m2.345s`, `250ms`, `0s`."""
    milliseconds = max(0, round(seconds * 1000))
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h" if hours else ""
    if hours or minutes:
        text += f"{minutes}m"
    return f"{text}{rest / 1000:g}s"
