"""One GPU's thread, its timetable, its time-out."""

import asyncio
from collections.abc import Callable

from opentelemetry.metrics import Counter

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Emit, Insist
from otel_zernel.engine.scraping import ScrapeThread
from otel_zernel.errors import Refused, Rejected
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.driver.library import Unavailable
from otel_zernel_receivers.nvml.gpu_slot import Place


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
    """Scrapes a GPU at the interval, and reads its sample buffers in between before they go round.

    Outlives restarts of the driver: a thread that hangs in it is not joined by another, and what it answers in the end
    is sent.
    """

    def __init__(self, index: int, config: NvmlConfig, context: Context, timeouts: Counter) -> None:
        self.hung = False
        """Whether its last call did not return in time."""
        self.trouble: str | None = None
        """A sentence about a GPU that does not answer, or is lost."""
        self._config = config
        self._context = context
        self._timeouts = timeouts
        self._thread = ScrapeThread(f"nvml {index}")
        self._call: asyncio.Task[Batch] | None = None
        self._error: str | None = None

    @property
    def busy(self) -> bool:
        """Whether its thread is inside the driver."""
        return self._thread.busy

    def close(self) -> None:
        """Forgets what it still waits for, and lets the thread end."""
        if self._call:
            self._call.cancel()
        self._thread.close()

    async def run(self, place: Place, emit: Emit, changed: Callable[[], None]) -> None:
        """Watches the place until cancelled. `changed` is called when `trouble` changes. Raises `Unavailable`."""
        clock = self._context.clock
        await deliver(self._late(), emit, self._config, self._context)
        due = clock.monotonic()
        while True:
            batch = await self._answer(place, place.scrape)
            self._say(place, changed)
            await deliver(batch, emit, self._config, self._context)
            due = max(due + self._config.collection_interval, clock.monotonic())
            await self._drain_until(due, place)

    async def _answer(self, place: Place, ask: Callable[[], Batch]) -> Batch:
        """What the driver says; nothing if it does not in time. Then its answer is waited for again, and comes late."""
        if self._call is None:
            self._call = asyncio.create_task(self._thread.call(ask))
        done, _ = await asyncio.wait({self._call}, timeout=self._config.timeout)
        self.hung = not done
        self._error = None
        if self.hung:
            about = {"hw.id": place.gpu.board.identity.uuid} if place.gpu else {"zernel.gpu.index": place.index}
            self._timeouts.add(1, about)
            return Batch()
        call, self._call = self._call, None
        try:
            return call.result()
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001  # what nobody foresaw costs this GPU its scrape, not the others theirs
            self._error = f"cannot be scraped: {type(error).__name__}: {error}"
            return Batch()

    def _late(self) -> Batch:
        """What came after the driver was closed."""
        if self._call is None or not self._call.done():
            return Batch()
        call, self._call = self._call, None
        return Batch() if call.cancelled() or call.exception() else call.result()

    async def _drain_until(self, due: float, place: Place) -> None:
        clock = self._context.clock
        while (left := due - clock.monotonic()) > 0:
            pause = None if self.hung else place.drain_interval
            if pause is None or pause >= left:
                return await clock.sleep(left)
            await clock.sleep(pause)
            await self._answer(place, place.drain)
        return None

    def _say(self, place: Place, changed: Callable[[], None]) -> None:
        problem = f"does not answer within {self._config.timeout:g} s" if self.hung else self._error or place.trouble
        trouble = f"{place.name} {problem}" if problem else None
        if trouble != self.trouble:
            self.trouble = trouble
            if trouble:
                self._context.logger.error("%s", trouble)
            else:
                self._context.logger.info("%s answers again", place.name)
            changed()
