"""The HTTPS server of the sidecar_injector extension."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from otel_zernel.component import Context, Extension
from otel_zernel.types import Address
from otel_zernel_extensions.sidecar_injector.config import SidecarInjectorConfig
from otel_zernel_extensions.sidecar_injector.declared import REVIEWS
from otel_zernel_extensions.sidecar_injector.reviewing import answer
from otel_zernel_extensions.sidecar_injector.sidecar import Sidecar, read_sidecar
from otel_zernel_libraries.serving.api.answers import ApiError, error_answer, json_answer, read_body
from otel_zernel_libraries.serving.serving import serve_guarded

_PATH: Final = "/mutate"
_LARGEST: Final = 1 << 23
"""Bytes of a request. The API server accepts objects of up to 3 MiB."""


class SidecarInjectorExtension(Extension):
    """Answers reviews of new pods with a patch that adds the sidecar."""

    Config = SidecarInjectorConfig
    stability = "beta"
    works_alone = True
    config: SidecarInjectorConfig

    def __init__(self, config: SidecarInjectorConfig, context: Context) -> None:
        super().__init__(config, context)
        self.address: Address | None = None
        """The address that it listens on, while it is entered."""
        self._serving = AsyncExitStack()
        self._reviews = context.meter.create_counter(*REVIEWS.counter)

    async def __aenter__(self) -> Self:
        config = self.config
        sidecar = await asyncio.to_thread(read_sidecar, config.sidecar, f"{self.context.path}::sidecar")
        server = serve_guarded(partial(self._answer, sidecar), config.endpoint, self.context, tls=config.tls, auth=None)
        self.address = await self._serving.enter_async_context(server)
        self.context.logger.info("Serving the webhook on https://%s%s", self.address, _PATH)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._serving.aclose()

    async def _answer(self, sidecar: Sidecar, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI application."""
        try:
            if scope["path"] != _PATH:
                raise ApiError(404, f"the webhook is {_PATH}")
            if scope["method"] != "POST":
                raise ApiError(405, "use POST", [(b"allow", b"POST")])
            await self._review(sidecar, receive, send)
        except ApiError as error:
            self._reviews.add(1, {"outcome": "rejected"})
            await error_answer(send, error.status, str(error), error.headers)

    async def _review(self, sidecar: Sidecar, receive: Any, send: Any) -> None:
        body = await read_body(receive, _LARGEST)
        # A large pod takes longer than 10 ms.
        reviewed = await asyncio.to_thread(answer, body, sidecar, self.config.cpu_limit)
        self._reviews.add(1, {"outcome": "injected" if reviewed.injects else "unchanged"})
        await json_answer(send, reviewed.body)
