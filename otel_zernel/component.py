"""The contracts: what a receiver, a processor, an exporter and an extension promise, and what they get.

A component's constructor takes its frozen configuration and a `Context` and touches nothing outside; only `run`,
`scrape` and `__aenter__` meet the world.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

from opentelemetry.metrics import Meter
from pydantic import BaseModel, ConfigDict

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel.errors import Refused
from otel_zernel.health import Health
from otel_zernel.types import Duration

Kind = Literal["receivers", "processors", "exporters", "extensions"]
Signal = Literal["metrics", "traces"]
BOTH: frozenset[Signal] = frozenset({"metrics", "traces"})
Stability = Literal["development", "alpha", "beta", "stable"]
Logger = logging.LoggerAdapter[logging.Logger]

Emit = Callable[[Batch], Awaitable[None]]
"""Hands a batch downstream. Returns when every exporter's queue has taken it, all or none; raises `Refused` (nothing
was taken, try later) or `Rejected` (it never will be, and is counted)."""


class ComponentConfig(BaseModel):
    """The root of every component's configuration: unknown keys are errors, and nothing changes after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True)
class Context:
    """What a component gets from the collector."""

    kind: Kind
    id: str
    """`type` or `type/name`, as configured."""
    logger: Logger
    meter: Meter
    """For the component's own metrics about itself."""
    clock: Clock
    health: Health
    drop: Callable[[int, str], None]
    """`drop(count, reason)` counts what this component loses, and why (`zernel.dropped_items`)."""
    signals: frozenset[Signal] = BOTH
    """For receivers: what a pipeline behind them has a use for; they need not make the other. For processors: what
    their pipeline carries."""

    @property
    def path(self) -> str:
        """The component's place in the configuration: `receivers::csv`."""
        return f"{self.kind}::{self.id}"

    def report(self, problem: str | None) -> None:
        """Shows one sentence of trouble in the collector's health, until it is cleared with None."""
        self.health.report(self.path, problem)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a component has found on this machine, for `otel-zernel doctor`."""

    topic: str
    """A word or two: `driver`."""
    text: str
    """One line. Of what is missing, one sentence that says what to do."""
    ok: bool | None = None
    """Whether the component has what it needs there; None for what is only good to know."""
    details: tuple[str, ...] = ()
    """Lines that `doctor --verbose` prints below, such as the end of a log."""


class Component:
    """What all four have in common."""

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    stability: ClassVar[Stability] = "development"
    transport: ClassVar[str] = ""
    """For receivers: what own telemetry calls the way in (`grpc`, `http`)."""
    signals: ClassVar[frozenset[Signal]] = BOTH
    """What it makes or takes; a pipeline whose name asks for another signal is a configuration error."""

    def __init__(self, config: Any, context: Context) -> None:
        """`config` is an instance of `Config`."""
        self.config = config
        self.context = context

    @classmethod
    def missing(cls) -> str | None:
        """One sentence that says what to install, if this machine lacks a part; asked at validation already."""
        return None

    @classmethod
    def examine(cls, config: Any = None) -> Iterable[Finding]:
        """What there is on this machine of what the component works with, or would with its defaults where there is no
        configuration. It may block. `config`, if given, is an instance of `Config`.

        It reads and tries, leaves everything as it was, and raises nothing. `missing` need not be repeated.
        """
        return ()


class Receiver(Component, ABC):
    """Makes batches until cancelled; returns only when its input has ended for good."""

    @abstractmethod
    async def run(self, emit: Emit) -> None:
        """Works until cancelled.

        An exception restarts it with backoff. `CannotStart` before the first batch stops the collector with the
        error's sentence. On cancellation it returns within a second; what it read and `emit` did not take is not lost
        where the source can give it again.
        """


class ScraperConfig(ComponentConfig):
    """When to scrape; defaults as in the OpenTelemetry Collector's scraper helper."""

    collection_interval: Duration = 60.0
    """Seconds from the start of one scrape to the start of the next."""
    initial_delay: Duration = 1.0
    """Seconds before the first."""
    timeout: Duration = 0.0
    """Seconds after which a scrape counts as failed; 0 for as long as the interval."""


class Scraper(Component, ABC):
    """A receiver that is asked for its points at an interval. The collector does the rest."""

    Config = ScraperConfig

    @abstractmethod
    def scrape(self) -> Batch:
        """The points of now. May block: it runs in a thread of its own, one call at a time.

        Raises `PartialScrape` with what it got, or anything else when it got nothing: the next interval tries again.
        """


class Processor(Component, ABC):
    """Turns batches into others: no I/O, no waiting. Called from one task only."""

    interval: float | None = None
    """Seconds between calls of `tick`; None for never."""

    @abstractmethod
    def process(self, batch: Batch) -> Iterable[Batch]:
        """What goes on downstream in place of `batch`. It owns the batch and may edit it.

        Work of over 10 ms is done in pieces: a generator that yields between them, if need be an empty batch, lets
        others have the event loop meanwhile.
        """

    def tick(self, now_ns: int) -> Iterable[Batch]:
        """What is due by the clock, `now_ns` being its wall-clock time."""
        return ()

    def flush(self) -> Iterable[Batch]:
        """What is still inside, at the end. Safe to call twice: the second time there is nothing."""
        return ()


class Exporter(Component, ABC):
    """Sends batches on. Entered before the first batch, left after the last; leaving without entering is safe."""

    async def __aenter__(self) -> Self:
        """Opens what it needs; raises `CannotStart` with a sentence for the user if it can't."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes it again."""
        return

    @abstractmethod
    async def export(self, batch: Batch) -> None:
        """Delivers one batch, unchanged. Raises `Retryable` or `Permanent`; called by several consumers at once
        unless the configuration says one. Cancelled when it takes longer than its `timeout`."""


class Extension(Component):
    """What is no stage of a pipeline: health, storage, an API."""

    async def __aenter__(self) -> Self:
        """Opens what it needs; raises `CannotStart` with a sentence for the user if it can't."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes it again; safe without `__aenter__`."""
        return


@dataclass(slots=True)
class Insist:
    """An `emit` that keeps offering a refused batch until it is taken: back-pressure for sources that can wait."""

    emit: Emit
    clock: Clock
    wait: float = field(default=0.01)
    """Seconds before the first new offer; doubles up to `longest`."""
    longest: float = field(default=0.5)

    async def __call__(self, batch: Batch) -> None:
        wait = self.wait
        while True:
            try:
                return await self.emit(batch)
            except Refused as refused:
                await self.clock.sleep(max(wait, refused.after or 0.0))
                wait = min(wait * 2, self.longest)
