"""Servers as users configure them: an endpoint, with a `tls` and an `auth` section beside it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from otel_zernel.authentication import AuthConfig, server_authenticator
from otel_zernel.component import Context
from otel_zernel_libraries.serving.access import App, protected
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.serving import Place, serve
from otel_zernel_libraries.serving.tls import ServerTls
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig


@asynccontextmanager
async def serve_guarded(
    app: App,
    place: Place,
    context: Context,
    *,
    tls: ServerTlsConfig | None,
    auth: AuthConfig | None,
    section: str = "",
    limits: ServerLimits | None = None,
) -> AsyncIterator[Place]:
    """Serves an ASGI application as `serve` does, with TLS and authentication if they are configured.

    `section` is the configuration key that has `endpoint`, `tls` and `auth` below it; the component's path by default.
    Raises `CannotStart`.
    """
    section = section or context.path
    guarded = protected(app, server_authenticator(auth, context, f"{section}::auth"))
    async with AsyncExitStack() as stack:
        certificate = await stack.enter_async_context(ServerTls(tls, f"{section}::tls", context)) if tls else None
        server = serve(
            guarded, place, f"{section}::endpoint", tls=certificate.context if certificate else None, limits=limits
        )
        yield await stack.enter_async_context(server)
