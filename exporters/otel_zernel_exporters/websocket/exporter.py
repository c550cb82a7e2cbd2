"""The websocket exporter: the feed of a GPU workload daemon, for its dashboards."""

import asyncio
import contextlib
import resource
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Exporter
from otel_zernel.component.declaration import DeclaredMetric
from otel_zernel.component.forms import DataForms
from otel_zernel.errors import invalid_is_permanent
from otel_zernel.runtime.tasks import cancel
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel.types import Address
from otel_zernel_exporters.websocket.config import WebSocketConfig
from otel_zernel_exporters.websocket.declared import SKIPPED_MESSAGES, SLOW_CLIENTS
from otel_zernel_libraries.extras import missing_packages
from otel_zernel_libraries.serving.access import joined_headers
from otel_zernel_libraries.serving.api.answers import error_answer
from otel_zernel_libraries.serving.cors import Cors, CorsConfig
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.serving import serve_guarded

_MESSAGE_SIZE: Final = 4096
"""The largest message that a reader may send. It is ignored."""
_SEND_BUFFER: Final = 16 << 10
"""Bytes in the kernel for a reader that stalls; it takes twice as many."""
_WRITE_BUFFER: Final = 4 << 10
"""Bytes in this process for a reader that stalls, besides one message."""
_SPARE: Final = 100
"""Connections besides those of the readers, for requests that are refused with a sentence."""


class WebSocketExporter(Exporter):
    """Pushes the memory and the latencies of a training as JSON to every WebSocket client."""

    Config = WebSocketConfig
    stability = "alpha"
    signals = frozenset({"metrics"})

    @classmethod
    def forms(cls, config: WebSocketConfig) -> DataForms:
        return DataForms(refuses={"interval_spans": ("*",)})

    @classmethod
    def missing(cls) -> str | None:
        return missing_packages("the websocket exporter", "websockets")

    def __init__(self, config: WebSocketConfig, context: Context) -> None:
        super().__init__(config, context)
        from otel_zernel_exporters.websocket.readers import Feed, FeedReaders  # a list of components does without it

        self.address: Address = config.endpoint
        """The address to listen on. For port 0, the assigned port once the exporter runs."""
        self._feed = Feed(context.clock, config.expiration)
        self._thread = ThreadPoolExecutor(1, "websocket")
        """Adds batches in their order, and makes messages: both may take longer than the event loop can wait."""
        self._cors = Cors(CorsConfig(allowed_origins=list(config.allowed_origins)))
        slow, skipped = self._counter(SLOW_CLIENTS), self._counter(SKIPPED_MESSAGES)
        self.readers = FeedReaders(
            self._message,
            context.clock,
            config.push_interval,
            slow=lambda: slow.add(1),
            skipped=skipped.add,
        )
        """The connected clients."""
        self._admitted = 0
        """Clients that have a place, with those whose handshake is on its way."""

    async def __aenter__(self) -> Self:
        config = self.config
        self._warn_of_too_few_files()
        self._stack.callback(self._thread.shutdown, wait=False)
        limits = ServerLimits(
            connections=config.max_clients + _SPARE,
            message_size=_MESSAGE_SIZE,
            send_buffer=_SEND_BUFFER,
            write_buffer=_WRITE_BUFFER,
        )
        server = serve_guarded(
            self._answer, config.endpoint, self.context, tls=config.tls, auth=config.auth, limits=limits
        )
        self.address = await self._stack.enter_async_context(server)
        pushing = asyncio.create_task(self.readers.run(), name="feed")
        self._stack.push_async_callback(cancel, pushing)
        self.context.logger.info("Pushing the feed on %s://%s", "wss" if config.tls else "ws", self.address)
        return self

    async def export(self, batch: Batch) -> None:
        """Adds a batch to the state, in the exporter's thread."""
        try:
            with invalid_is_permanent():
                await run_in_thread(lambda: self._feed.add(batch), self._thread)
        finally:
            for reason, count in self._feed.state.take_dropped().items():
                self.context.drop(count, reason)

    async def _message(self) -> str:
        return await run_in_thread(self._feed.message, self._thread)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """The application of the server: the same feed on every path."""
        if scope["type"] == "http":
            sentence = "this port has a feed for WebSocket clients; the exporter prometheus has a port for Prometheus"
            await error_answer(send, 426, sentence, [(b"upgrade", b"websocket")])
            return
        origin = joined_headers(scope["headers"]).get("origin", "")
        if origin and not self._cors.allows(origin):
            sentence = (
                f"pages of {origin:.100} may not read the feed; add the origin to allowed_origins of the exporter"
            )
            await error_answer(send, 403, sentence, http=False)
        elif self._admitted >= self.config.max_clients:
            sentence = f"{self._admitted} clients read the feed already; raise max_clients, or close some of them"
            await error_answer(send, 503, sentence, [(b"retry-after", b"10")], http=False)
        else:
            await self._serve(receive, send)

    async def _serve(self, receive: Any, send: Any) -> None:
        self._admitted += 1
        try:
            with contextlib.suppress(OSError):  # the client has left
                await receive()
                await send({"type": "websocket.accept"})
                await self.readers.serve(receive, send)
        finally:
            self._admitted -= 1

    def _counter(self, metric: DeclaredMetric) -> Any:
        return self.context.meter.create_counter(*metric.counter)

    def _warn_of_too_few_files(self) -> None:
        """The server accepts a quarter of the process's open files."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        if "max_clients" in self.config.model_fields_set and self.config.max_clients > most:
            self.context.logger.warning(
                "The limit of open files allows %d clients only; raise it to %d (ulimit -n, LimitNOFILE)",
                most,
                4 * (self.config.max_clients + _SPARE),
            )
