"""The live exporter: the state of a training as JSON, for pages and terminals."""

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from otel_zernel import __version__
from otel_zernel.batch import Batch
from otel_zernel.component import Context, Exporter
from otel_zernel.errors import invalid_is_permanent
from otel_zernel.repeated import Repeated
from otel_zernel.runtime.tasks import cancel
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel.text import visible, without_secrets
from otel_zernel_exporters.live.config import LiveConfig
from otel_zernel_exporters.live.declared import SLOW_CLIENTS
from otel_zernel_libraries.output_files import write_for_caller
from otel_zernel_libraries.serving.api.live import LiveSource
from otel_zernel_libraries.serving.api.routes import Route
from otel_zernel_libraries.serving.api.server import api_server

if TYPE_CHECKING:  # a list of components does without these modules
    from otel_zernel_exporters.live.live_state import LiveState

_KEPT = "state"


class LiveExporter(Exporter, LiveSource):
    """Keeps the state of a training, and serves it as a page, as JSON and as a stream of changes."""

    Config = LiveConfig
    stability = "alpha"
    config: LiveConfig

    def __init__(self, config: LiveConfig, context: Context) -> None:
        super().__init__(config, context)
        from otel_zernel_exporters.live.streaming import LiveStream

        self._host = ""
        self._state = self._kept_state() or self._new_state()
        self._malformed = Repeated(context.clock.monotonic)
        slow = context.meter.create_counter(*SLOW_CLIENTS.counter)
        self._stream = LiveStream(
            self._state,
            self._collector,
            context.clock,
            push_interval=config.push_interval,
            max_clients=config.max_clients,
            slow=lambda: slow.add(1),
            failed=self._push_failed,
        )

    def snapshot(self) -> dict[str, Any]:
        return self._state.snapshot(self._collector())

    def changes_since(self, seq: int) -> list[dict[str, Any]] | None:
        return self._state.changes_since(seq, self._collector())

    async def __aenter__(self) -> Self:
        self._host = socket.gethostname()
        self.context.kept[_KEPT] = (self._kind_of_state, self._state)
        if self.config.html:
            self._stack.push_async_callback(self._save, self.config.html)
        if self.config.api is not None:
            server = api_server(self.config.api, self.context, f"{self.context.path}::api")
            pushing = asyncio.create_task(self._stream.run(), name="live deltas")
            self._stack.push_async_callback(cancel, pushing)
            self._stack.enter_context(server.serve(self.context.path, self._routes()))
            self.context.logger.info("The live page is on %s/", server.url)
        return self

    async def export(self, batch: Batch) -> None:
        """Adds a batch to the state, in the exporter's thread."""
        try:
            with invalid_is_permanent():
                await run_in_thread(lambda: self._state.add(batch), self._state.executor)
        finally:
            for reason, count in self._state.take_dropped().items():
                self.context.drop(count, reason)
                if reason == "malformed_span" and (due := self._malformed.add(count)):
                    self.context.logger.warning(
                        "Dropped malformed spans (%d): %s is missing, or its type is not as in "
                        "docs/development/spans.md",
                        due,
                        self._state.malformed,
                    )

    @property
    def _kind_of_state(self) -> tuple[int, float]:
        """The settings that a state keeps for its life."""
        return self.config.history, self.config.expiration

    def _kept_state(self) -> "LiveState | None":
        """The state of the exporter before a reload, if it has the same settings."""
        from otel_zernel_exporters.live.live_state import LiveState

        kind, state = self.context.kept.get(_KEPT, (None, None))
        return state if kind == self._kind_of_state and isinstance(state, LiveState) else None

    def _new_state(self) -> "LiveState":
        from otel_zernel_exporters.live.live_state import LiveState

        history, expiration = self._kind_of_state
        return LiveState(self.context.clock, history=history, expiration=expiration)

    async def _save(self, path: Path) -> None:
        from otel_zernel_exporters.live.page import saved_page

        state = self.snapshot()
        try:
            await asyncio.to_thread(lambda: write_for_caller(path, saved_page(state).encode("utf-8")))
        except OSError as error:
            self.context.logger.error("Cannot write the page to %s: %s", path, error.strerror)

    def _push_failed(self, error: Exception) -> None:
        name = type(error).__name__
        self.context.logger.error("The live state could not be sent because of a bug: %s", name, exc_info=error)

    def _routes(self) -> list[Route]:
        from otel_zernel_exporters.live.page import page_routes

        return [
            *page_routes(),
            Route("/api/live", self._stream.answer_state, summary="The live state of the training."),
            Route(
                "/api/live/stream",
                self._stream.answer_stream,
                summary="The live state, and then its changes, as server-sent events.",
                content_type="text/event-stream",
            ),
        ]

    def _collector(self) -> dict[str, Any]:
        """The state of the collector itself."""
        health, clock = self.context.health, self.context.clock
        fields: dict[str, Any] = {"host": self._host, "version": __version__}
        if self.config.replay:
            fields["replay"] = True
        if health.up_since is not None:
            fields["up_since"] = int(health.up_since * 1000)
        sentences = sorted(health.sentences(clock.monotonic()).items())
        shown = {path: visible(without_secrets(text)) for path, text in sentences}
        fields["problems"] = {path: text for path, text in shown.items() if path not in health.absences}
        fields["absent"] = {path: text for path, text in shown.items() if path in health.absences}
        fields["queues"] = {
            id_: {"items": queue.size, "capacity": queue.capacity} for id_, queue in sorted(health.queues.items())
        }
        fields["dropped"] = dict(sorted(health.dropped.items()))
        return fields
