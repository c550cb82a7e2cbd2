"""One GPU at work: its thread, its timetable, its time-out."""

import asyncio
from collections.abc import Callable

from opentelemetry.metrics import Counter

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Emit, Insist
from otel_zernel.errors import Refused, Rejected
from otel_zernel.scraping import ScrapeThread
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.gpu import Gpu
from otel_zernel_receivers.nvml.library import Lost


async def deliver(batch: Batch, emit: Emit, config: NvmlConfig, context: Context) -> None:
    """Hands a scrape downstream; one that finds no room until the next is due is dropped and counted."""
    if not batch.item_count:
        return
    try:
        async with asyncio.timeout(config.collection_interval):
            await Insist(emit, context.clock)(batch)
    except (TimeoutError, Refused):
        context.drop(batch.item_count, "refused")
        context.logger.warning("Dropped a scrape of %d items: downstream is full", batch.item_count)
    except Rejected:  # who rejected it has counted it
        return


class Watch:
    """Scrapes a GPU at the interval, and reads its sample buffers in between before they go round."""

    def __init__(self, gpu: Gpu, thread: ScrapeThread, config: NvmlConfig, context: Context, timeouts: Counter) -> None:
        """`thread` is the GPU's own."""
        self.gpu = gpu
        self.trouble: str | None = None
        """A sentence about a GPU that does not answer."""
        self.lost = False
        self._config = config
        self._context = context
        self._timeouts = timeouts
        self._thread = thread
        self._call: asyncio.Task[Batch] | None = None

    def close(self) -> None:
        """Forgets what it still waits for."""
        if self._call:
            self._call.cancel()

    async def run(self, emit: Emit, changed: Callable[[], None]) -> None:
        """Works until the GPU is lost. `changed` is called when `trouble` changes. Raises `Unavailable`."""
        clock = self._context.clock
        due = clock.monotonic()
        try:
            while True:
                batch = await self._answer(self.gpu.scrape)
                self._say(
                    None if batch else f"{self.gpu.name} does not answer within {self._config.timeout:g} s", changed
                )
                if batch:
                    await deliver(batch, emit, self._config, self._context)
                due = max(due + self._config.collection_interval, clock.monotonic())
                await self._drain_until(due)
        except Lost as lost:
            self.lost = True
            self._say(f"{self.gpu.name} {lost}", changed)
            await deliver(self.gpu.failed(), emit, self._config, self._context)

    async def _answer(self, ask: Callable[[], Batch]) -> Batch | None:
        """What the driver says; None if it does not in time. Then its answer is waited for again, and comes late."""
        if self._call is None:
            self._call = asyncio.create_task(self._thread.call(ask))
        done, _ = await asyncio.wait({self._call}, timeout=self._config.timeout)
        if not done:
            self._timeouts.add(1, {"hw.id": self.gpu.board.identity.uuid})
            return None
        call, self._call = self._call, None
        return call.result()

    async def _drain_until(self, due: float) -> None:
        clock = self._context.clock
        while (left := due - clock.monotonic()) > 0:
            pause = self.gpu.drain_interval
            if pause is None or pause >= left or self._call:
                return await clock.sleep(left)
            await clock.sleep(pause)
            await self._answer(self.gpu.drain)
        return None

    def _say(self, trouble: str | None, changed: Callable[[], None]) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            if trouble:
                self._context.logger.error("%s", trouble)
            else:
                self._context.logger.info("%s answers again", self.gpu.name)
            changed()
