"""The schedule of a scraper: initial delay, interval and timeout around a `scrape` that may block."""

import asyncio
from collections.abc import Callable

from otel_zernel.batch import Batch
from otel_zernel.component import Emit, Insist, PartialScrape, Scraper, ScraperConfig
from otel_zernel.errors import CannotStart, Refused, Rejected
from otel_zernel.runtime.threads import WorkerThread
from otel_zernel.telemetry import ScraperMetrics


class ScrapeLoop:
    """Makes a receiver out of a scraper."""

    def __init__(self, scraper: Scraper, metrics: ScraperMetrics, accepted: Callable[[], int] = lambda: 0) -> None:
        """`accepted` returns the number of items that `emit` has accepted so far."""
        config = scraper.config
        assert isinstance(config, ScraperConfig)  # noqa: S101  # Scraper.Config promises it
        self._scraper = scraper
        self._metrics = metrics
        self._accepted = accepted
        self._context = scraper.context
        self._config = config
        self._timeout = config.timeout or config.collection_interval
        self._failure: str | None = None
        """The logged failure, until a scrape succeeds."""
        self._repeats = 0
        """Scrapes that failed again for the same reason, which are counted but not logged."""

    async def run(self, emit: Emit) -> None:
        """Scrapes at the interval until cancelled."""
        clock = self._context.clock
        thread = WorkerThread(f"scrape {self._context.id}")
        try:
            await clock.sleep(self._config.initial_delay)
            due = clock.monotonic()
            while True:
                await self._scrape(thread, emit)
                due = max(due + self._config.collection_interval, clock.monotonic())
                await clock.sleep(due - clock.monotonic())
        finally:
            thread.close(self._scraper.close)

    async def _scrape(self, thread: WorkerThread, emit: Emit) -> None:
        batch = await self._result(thread)
        count = batch.item_count
        if not count:
            return
        self._metrics.scraped(count)
        before = self._accepted()
        try:
            async with asyncio.timeout(self._config.collection_interval):
                await Insist(emit, self._context.clock)(batch)
        except (TimeoutError, Refused):
            if self._accepted() > before:  # it waits for a disk or a server, where it is counted
                return
            self._context.drop(count, "refused")
            self._context.logger.warning(
                "Dropped a scrape of %d items: an exporter's queue stayed full for a whole interval", count
            )
        except Rejected:
            return

    async def _result(self, thread: WorkerThread) -> Batch:
        """The points of one scrape, empty if it fails. Raises `CannotStart`."""
        try:
            if thread.busy:
                raise TimeoutError
            async with asyncio.timeout(self._timeout):
                batch = await thread.call(self._scraper.scrape)
        except TimeoutError:
            self._failed(f"no answer within {self._timeout:g} s")
        except PartialScrape as partial:
            self._failed(str(partial), partial.errors)
            return partial.batch
        except CannotStart:
            raise
        except Exception as error:  # noqa: BLE001  # a scrape that fails costs its points, not the receiver
            self._failed(f"{type(error).__name__}: {error}")
        else:
            self._succeeded()
            return batch
        return Batch()

    def _succeeded(self) -> None:
        self._context.report(None)
        if self._repeats:
            self._context.logger.info("Scraping succeeds again, after %d failures", self._repeats + 1)
        self._failure = None
        self._repeats = 0

    def _failed(self, reason: str, points: int = 1) -> None:
        """Counts a failure, and logs it unless it is the last one again."""
        self._metrics.errored(points)
        self._context.report(reason)
        if reason == self._failure:
            self._repeats += 1
            return
        self._failure = reason
        self._repeats = 0
        self._context.logger.error("Scraping failed: %s", reason)
