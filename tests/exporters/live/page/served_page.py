"""The live page as a browser gets it: the real exporter behind a real server, in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel.types import Address
from otel_zernel_exporters.live import LiveExporter
from otel_zernel_libraries.serving.serving import serve
from tests.api_server import FakeApiServer


class LateClock(SystemClock):
    """The system's clock, some seconds behind. It can be held: then no time passes."""

    behind = 0.0
    _held: tuple[int, float] | None = None

    def hold(self) -> None:
        self._held = super().time_ns(), super().monotonic()

    def time_ns(self) -> int:
        return (self._held[0] if self._held else super().time_ns()) - int(self.behind * 1e9)

    def monotonic(self) -> float:
        return (self._held[1] if self._held else super().monotonic()) - self.behind


class ServedPage:
    """A live exporter whose page is served. Its port stays the same over `stop` and `start`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._api = FakeApiServer()
        self._clock = LateClock()
        context = make_context("exporters", "live", clock=self._clock, extensions={"api": self._api})
        self._exporter = LiveExporter(LiveExporter.Config.model_validate({"push_interval": "100ms"}), context)
        self.health = context.health
        self._entered = AsyncExitStack()
        self._server = AsyncExitStack()
        self._address = Address("127.0.0.1", 0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._address.port}/"

    @property
    def state(self) -> dict[str, Any]:
        """The state of now."""

        async def snapshot() -> dict[str, Any]:
            return self._exporter.snapshot()

        wait: dict[str, Any] = self._wait(snapshot())
        return wait

    def add(self, batches: Iterable[Batch]) -> None:
        """Exports the batches."""

        async def export_all() -> None:
            for batch in batches:
                await self._exporter.export(batch)

        self._wait(export_all())

    def add_past(self, seconds: Sequence[Iterable[Batch]]) -> None:
        """Exports the batches of each of the last seconds, as if they arrived in time."""
        for at, batches in enumerate(seconds):
            self._clock.behind = float(len(seconds) - at)
            self.add(batches)
            assert self.state
        self._clock.behind = 0.0

    def hold(self) -> None:
        """Stops the clock of the state: however slow the machine is, the data stays as old as it is."""
        self._clock.hold()

    def start(self) -> None:
        """Serves the page."""
        self._wait(self._start())

    def stop(self) -> None:
        """Closes the server. The state stays."""
        self._wait(self._server.aclose())

    def close(self) -> None:
        self.stop()
        self._wait(self._entered.aclose())

    async def _start(self) -> None:
        if not self._address.port:
            await self._entered.enter_async_context(self._exporter)
        self._address = await self._server.enter_async_context(serve(self._api.app, self._address, "test"))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(60)


@contextmanager
def served_page(past: Sequence[Iterable[Batch]] = (), *, held: bool = False) -> Iterator[ServedPage]:
    """The page of a state with the batches of the last seconds. `held`: no time passes for the state."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        page = ServedPage(loop)
        if held:
            page.hold()
        page.add_past(past)
        page.start()
        try:
            yield page
        finally:
            page.close()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
