"""The HTTP server of the health_check extension."""

from typing import Annotated, Any, Self

from pydantic import Field

from otel_zernel.authentication import AuthConfig
from otel_zernel.component import ComponentConfig, Context, Extension
from otel_zernel.types import Address, Duration, ListenAddress
from otel_zernel_libraries.serving.api.answers import json_answer
from otel_zernel_libraries.serving.serving import serve_guarded
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig


class HealthCheckConfig(ComponentConfig):
    """The address of the health check. Names and defaults are those of the OpenTelemetry Collector."""

    endpoint: ListenAddress = Address("localhost", 13133)
    """Host and port to listen on."""
    tls: ServerTlsConfig | None = None
    """TLS of the server. null serves plain HTTP."""
    auth: AuthConfig | None = None
    """The extension that checks requests. null lets everybody read the state."""
    unhealthy_after: Duration = 0.0
    """Seconds after which an exporter that delivers nothing makes the answer 503; 0 for never."""
    path: Annotated[str, Field(pattern="^/")] = "/"
    """The path to answer. Every other path returns 404."""


class HealthCheckExtension(Extension):
    """Answers 200 while the collector runs, and 503 while it starts or stops, or if an exporter fails too long."""

    Config = HealthCheckConfig
    stability = "beta"

    def __init__(self, config: HealthCheckConfig, context: Context) -> None:
        super().__init__(config, context)
        self.address: Address | None = None
        """The address that it listens on, while it is entered."""

    async def __aenter__(self) -> Self:
        tls, auth = self.config.tls, self.config.auth
        server = serve_guarded(self._answer, self.config.endpoint, self.context, tls=tls, auth=auth)
        self.address = await self._stack.enter_async_context(server)
        scheme = "https" if tls else "http"
        self.context.logger.info("Serving health checks on %s://%s%s", scheme, self.address, self.config.path)
        return self

    async def _answer(self, request: Any, receive: Any, send: Any) -> None:
        """The ASGI application. A framework would cost 10 MB of memory for a single path."""
        if request["path"] != self.config.path:
            await json_answer(send, {"status": "Not found"}, 404)
        elif request["method"] not in ("GET", "HEAD"):
            await json_answer(send, {"status": "Method not allowed"}, 405, [(b"allow", b"GET, HEAD")])
        else:
            is_available, state = self.context.health.state(self.context.clock, self.config.unhealthy_after)
            await json_answer(send, state, 200 if is_available else 503)
