"""The api extension.

Its outermost ASGI application sets the headers of every answer, answers preflight requests of browsers, and measures.
"""

import socket
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final, Self

from otel_zernel.authentication import ServerAuthenticator, server_authenticator
from otel_zernel.component import Context
from otel_zernel.types import Address
from otel_zernel_extensions.api.admission import Admission
from otel_zernel_extensions.api.config import ApiConfig
from otel_zernel_extensions.api.measuring import MeasuredRequest, RequestMetrics
from otel_zernel_extensions.api.openapi import openapi, page
from otel_zernel_extensions.api.origins import Origins
from otel_zernel_extensions.api.rates import Rates
from otel_zernel_libraries.serving.access import joined_headers, missing_protection
from otel_zernel_libraries.serving.api.answers import json_answer, plain_answer
from otel_zernel_libraries.serving.api.dispatch import Dispatcher, RunningRequest
from otel_zernel_libraries.serving.api.routes import App, Route
from otel_zernel_libraries.serving.api.server import ApiServer
from otel_zernel_libraries.serving.cors import Cors
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.serving import serve
from otel_zernel_libraries.serving.tls import served_tls

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


_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_MESSAGE_SIZE: Final = 1 << 16
"""The largest message of a WebSocket in bytes: clients send commands, not data."""
_SEND_BUFFER: Final = 1 << 18
"""Bytes. A stream to a client that reads nothing fills the buffer of the kernel first."""


class ApiExtension(ApiServer):
    """Serves the routes of other components over HTTP and WebSocket, the state, and a description of all routes."""

    Config = ApiConfig
    stability = "beta"
    config: ApiConfig

    def __init__(self, config: ApiConfig, context: Context) -> None:
        super().__init__(config, context)
        self.address: Address | None = None
        """The address that it listens on, while it is entered."""
        self._dispatcher = Dispatcher(
            self._admit, self._permit, lambda: context.health.up_since is not None, context.clock.monotonic
        )
        self._admission: Admission | None = None
        """Exists while it is entered."""

    def serve(self, owner: str, routes: Iterable[Route]) -> AbstractContextManager[None]:
        return self._dispatcher.having(owner, routes)

    @property
    def running_requests(self) -> Collection[RunningRequest]:
        """The requests that are being answered."""
        return self._dispatcher.running

    async def __aenter__(self) -> Self:
        config, path = self.config, self.context.path
        authenticator = server_authenticator(config.auth, self.context, f"{path}::auth")
        self._warn_if_open()
        cors = Cors(config.cors, _METHODS)
        self._admission = self._admitting(authenticator, cors)
        metrics = RequestMetrics(self.context.meter, self.context.clock.monotonic)
        limits = ServerLimits(message_size=_MESSAGE_SIZE, connections=config.max_connections, send_buffer=_SEND_BUFFER)
        tls = await self._stack.enter_async_context(served_tls(config.tls, f"{path}::tls", self.context))
        self._stack.enter_context(self.serve(path, self._routes(authenticator)))
        server = serve(
            Outside(self._dispatcher, cors, metrics),
            config.endpoint,
            f"{path}::endpoint",
            tls=tls,
            limits=limits,
            is_browsed=True,
        )
        self.address = await self._stack.enter_async_context(server)
        self._stack.callback(self._dispatcher.leave_all)
        self.url = f"{'https' if tls else 'http'}://{self.address}"
        self.context.logger.info("Serving the API on %s", self.url)
        return self

    def _admitting(self, authenticator: ServerAuthenticator | None, cors: Cors) -> Admission:
        config, limit = self.config, self.config.rate_limit
        hosts = (*config.allowed_hosts, config.endpoint.host, socket.gethostname())
        monotonic = self.context.clock.monotonic
        rates = Rates(limit.requests_per_second, limit.burst, monotonic) if limit else None
        parameters = config.auth.request_params if config.auth else []
        origins = Origins(hosts, cors, any_host=bool(config.auth))
        return Admission(origins, rates, authenticator, parameters, any_user=config.allow_local_users)

    async def _admit(self, scope: Any) -> None:
        if self._admission:
            await self._admission.admit(scope)

    async def _permit(self, route: Route, scope: Any) -> None:
        if self._admission:
            await self._admission.permit(route, scope)

    def _warn_if_open(self) -> None:
        endpoint = self.config.endpoint
        if missing := missing_protection(endpoint, self.config.tls, self.config.auth):
            self.context.logger.warning(
                "%s::endpoint: other machines can use %s without %s; set tls and auth, or listen on localhost",
                self.context.path,
                endpoint,
                missing,
            )

    def _routes(self, authenticator: ServerAuthenticator | None) -> list[Route]:
        challenge = authenticator.challenge if authenticator else None

        async def health(scope: Any, receive: Any, send: Any) -> None:
            is_available, state = self.context.health.state(self.context.clock, self.config.unhealthy_after)
            await json_answer(send, state, 200 if is_available else 503)

        async def description(scope: Any, receive: Any, send: Any) -> None:
            await json_answer(send, openapi(self._dispatcher.table.routes, challenge))

        async def docs(scope: Any, receive: Any, send: Any) -> None:
            await plain_answer(send, page(self._dispatcher.table.routes), "text/html; charset=utf-8")

        state = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
        return [
            Route("/healthz", health, summary="The state of the collector.", answer=state),
            Route("/openapi.json", description, summary="This description.", answer={"type": "object"}),
            Route("/docs", docs, summary="This description for people.", content_type="text/html"),
        ]
