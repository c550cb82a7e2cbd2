"""The contracts of receivers and scrapers."""

from abc import ABC, abstractmethod
from typing import ClassVar

from otel_zernel.batch import Batch
from otel_zernel.component.component import Component, ComponentConfig
from otel_zernel.component.emit import Emit
from otel_zernel.errors import ZernelError
from otel_zernel.types import Duration


class Receiver(Component, ABC):
    """Produces batches until it is cancelled. Returns only when its input has ended for good."""

    serves: ClassVar[bool] = False
    """Whether `run` has servers, and sets `context.listening`."""

    @abstractmethod
    async def run(self, emit: Emit) -> None:
        """Runs until cancelled.

        An exception restarts the receiver with backoff. `CannotStart` before the first batch stops the collector with
        the error's sentence. After a cancellation, `run` returns within 1 s, and data that `emit` has not accepted
        stays available at the source where the source allows it.
        """


class ScraperConfig(ComponentConfig):
    """The schedule of a scraper. The defaults are those of the OpenTelemetry Collector's scraper helper."""

    collection_interval: Duration = 60.0
    """Seconds from the start of one scrape to the start of the next."""
    initial_delay: Duration = 1.0
    """Seconds before the first scrape."""
    timeout: Duration = 0.0
    """Seconds after which a scrape counts as failed. 0 means `collection_interval`."""


class PartialScrape(ZernelError):
    """A scrape that read the points in `batch` and failed for `errors` other points."""

    def __init__(self, message: str, batch: Batch, errors: int) -> None:
        super().__init__(message)
        self.batch = batch
        self.errors = errors


class Scraper(Component, ABC):
    """A receiver whose `scrape` the collector calls at an interval."""

    Config: ClassVar[type[ScraperConfig]] = ScraperConfig

    @abstractmethod
    def scrape(self) -> Batch:
        """The current points. May block: it runs in a thread of its own, one call at a time.

        Raises `PartialScrape` if only some points could be read, and any other exception if none could. The next
        interval tries again.
        """

    def close(self) -> None:  # most scrapers have nothing to release
        """Releases what `scrape` has opened. Called in the same thread after the last call, also if it failed.

        If that call hangs, `close` may never be called.
        """
