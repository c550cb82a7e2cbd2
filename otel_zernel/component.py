"""The contracts of receivers, processors, exporters and extensions, and the context that each one gets.

The constructor of a component stores its configuration and its `Context`, and does no I/O. Only `run`, `scrape`,
`export`, `__aenter__` and `__aexit__` do I/O.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, NoReturn, Protocol, Self, runtime_checkable

from opentelemetry.metrics import Meter

from otel_zernel.batch import ALL_SIGNALS, Batch, Signal
from otel_zernel.clock import Clock
from otel_zernel.errors import CannotStart, Refused, ZernelError
from otel_zernel.forms import DataForms
from otel_zernel.health import Health
from otel_zernel.types import Duration, Section

Kind = Literal["receivers", "processors", "exporters", "extensions"]
Stability = Literal["development", "alpha", "beta", "stable"]
Logger = logging.LoggerAdapter[logging.Logger]


class Emit(Protocol):
    """The function by which a receiver sends a batch downstream."""

    async def __call__(self, batch: Batch, *, transport: str = "") -> None:
        """Returns when the batch is safe: every exporter's queue that holds back its source has accepted it.

        A durable queue, and one with `block_on_overflow`, hold back their source. Any other queue that is full drops
        the batch, counts it, and delays nobody; only local exporters delay their sources, while they work. The batch
        belongs to the pipelines once it is accepted: the receiver must not read, edit or emit it again. If the call is
        cancelled, the batch may be accepted or not.
        `transport` names the server that received it (`grpc`, `http`) in the receiver's own metrics.
        Raises `Refused` if a queue that holds back has no room, if a processor refuses it, or if no queue accepted it:
        emit the same batch again later. Raises `Rejected` if it will never be accepted; it is counted as lost.
        """


class ComponentConfig(Section):
    """The root of a component's configuration."""


@dataclass(frozen=True, slots=True)
class Context:
    """The services that the collector gives to a component."""

    kind: Kind
    id: str
    """`type` or `type/name`, as configured."""
    logger: Logger
    meter: Meter
    """For the component's metrics about itself. No observable instruments: after a reload, the SDK would still call
    those of the former instance."""
    clock: Clock
    health: Health
    drop: Callable[[int, str], None]
    """`drop(count, reason)` counts items that this component loses, in `zernel.dropped_items`."""
    signals: frozenset[Signal] = ALL_SIGNALS
    """For receivers: the signals that their pipelines use; they may leave out the others. For processors: the signals
    that their pipeline carries."""
    extensions: Mapping[str, "Extension"] = field(default_factory=dict)
    """The extensions in `service::extensions`, by id. They are entered before every other component."""
    kept: dict[str, Any] = field(default_factory=dict)
    """Values that the component wants to keep over a reload that restarts it: the next instance in its place finds
    them. They end with the process."""

    @property
    def path(self) -> str:
        """The component's path in the configuration: `receivers::csv`."""
        return f"{self.kind}::{self.id}"

    def report(self, problem: str | None) -> None:
        """Shows a problem, one sentence, in the collector's health; None clears it."""
        self.health.report(self.path, problem)

    def extension(self, id_: str) -> "Extension":
        """The extension with this id. Raises `CannotStart` if it is not enabled."""
        if found := self.extensions.get(id_):
            return found
        enabled = ", ".join(self.extensions) or "none"
        raise CannotStart(
            f"{self.path}: extension {id_} is not enabled; add it to service::extensions (enabled: {enabled})"
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a component's examination of this machine, for `otel-zernel doctor`."""

    topic: str
    """One or two words: `driver`."""
    text: str
    """One line. If something is missing, one sentence that says what to do."""
    ok: bool | None = None
    """Whether the prerequisite is met; None for information only."""
    details: tuple[str, ...] = ()
    """Lines that `doctor --verbose` prints below, such as the end of a log."""


class Component:
    """The part of the contract that all four kinds share."""

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    stability: ClassVar[Stability] = "development"
    signals: ClassVar[frozenset[Signal]] = ALL_SIGNALS
    """The signals that it emits or accepts. A pipeline that carries none of them is a configuration error."""

    def __init__(self, config: Any, context: Context) -> None:
        """`config` is an instance of `Config`."""
        self.config = config
        self.context = context

    @classmethod
    def description(cls) -> str:
        """One sentence for `otel-zernel components`: the first line of the class's docstring."""
        return (cls.__doc__ or "").strip().partition("\n")[0]

    @classmethod
    def missing(cls) -> str | None:
        """One sentence that says what to install if an optional package is not installed, else None.

        Called when the configuration is validated.
        """
        return None

    @classmethod
    def forms(cls, config: Any) -> DataForms:
        """The special forms of data that the component emits, converts or refuses with a configuration.

        `config` is an instance of `Config`. Called when the configuration is validated; it must not do I/O.
        """
        return DataForms()

    @classmethod
    def advice(cls, config: Any) -> Iterable[tuple[str, str]]:
        """Warnings about a valid configuration, an instance of `Config`: a key, and one sentence that says what to do.

        Keys are joined by `::`. Called when the configuration is validated; it must not do I/O.
        """
        return ()

    @classmethod
    def examine(cls, config: Any = None) -> Iterable[Finding]:
        """Reports which prerequisites this machine meets, for `otel-zernel doctor`.

        `config` is an instance of `Config`; if it is None, the defaults apply. May block. It must leave the machine as
        it was and must not raise. It need not repeat `missing`.
        """
        return ()


class Receiver(Component, ABC):
    """Produces batches until it is cancelled. Returns only when its input has ended for good."""

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

    Config = ScraperConfig

    @abstractmethod
    def scrape(self) -> Batch:
        """The current points. May block: it runs in a thread of its own, one call at a time.

        Raises `PartialScrape` if only some points could be read, and any other exception if none could. The next
        interval tries again.
        """


class _Pause(Batch):
    """An empty batch that cannot be edited, because all processors share it."""

    __slots__ = ()

    def edit_metrics(self) -> NoReturn:
        raise TypeError("PAUSE carries no data and must not be edited")

    def edit_spans(self) -> NoReturn:
        raise TypeError("PAUSE carries no data and must not be edited")

    def edit_logs(self) -> NoReturn:
        raise TypeError("PAUSE carries no data and must not be edited")

    def edit(self, signal: Signal) -> NoReturn:
        raise TypeError("PAUSE carries no data and must not be edited")


PAUSE: Final[Batch] = _Pause()
"""A processor yields this between two pieces of work. The pipeline then lets other tasks run, and forwards nothing."""


class Processor(Component, ABC):
    """Turns batches into other batches: no I/O, no waiting. Only one call is active at a time."""

    belongs_first: ClassVar[bool] = False
    """Whether it should be the first processor of its pipeline. Another place is a warning."""
    heavy_modules: ClassVar[tuple[str, ...]] = ()
    """Names of modules that `process` imports. The pipeline imports them in a thread before the first batch, so that
    the collector starts quickly and the import does not block the event loop."""
    interval: float | None = None
    """Seconds between calls of `tick`; None for no calls."""

    @abstractmethod
    def process(self, batch: Batch) -> Iterable[Batch]:
        """The batches that replace `batch` downstream. The processor owns `batch` and may edit it.

        Work of more than 10 ms is split: a generator yields a finished batch or `PAUSE` between two pieces.
        """

    def admit(self, batch: Batch) -> None:
        """Raises `Refused` if its pipeline must not accept the batch now. Must not change the batch.

        Called for every processor before the first one gets the batch. The source emits a refused batch again.
        """

    def tick(self, now_ns: int) -> Iterable[Batch]:
        """The batches that are due at wall-clock time `now_ns` (ns since 1970)."""
        return ()

    def flush(self) -> Iterable[Batch]:
        """The batches that the processor still holds when the collector stops. A second call returns nothing."""
        return ()


class Exporter(Component, ABC):
    """Sends batches out of the collector. Entered before its first batch and left after its last one.

    It must be safe to leave without entering.
    """

    delivery: ClassVar[Literal["local", "remote"]] = "local"
    """How batches reach it. `local`: in order, by one consumer, with endless retries. `remote`: as the user configures
    it; `Config` must then derive from `RemoteExporterConfig`."""

    async def __aenter__(self) -> Self:
        """Opens its resources. Raises `CannotStart` with one sentence for the user if it cannot."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes its resources."""
        return

    def prepares(self, batch: Batch) -> bool:
        """Whether `prepare` has to see the batch before it is queued. It is called for every batch: it must be fast."""
        return False

    def prepare(self, batch: Batch, *, dropped: bool) -> Iterable[Batch]:
        """The batches to queue in place of this one. The exporter owns `batch`, which has one signal, and may edit it.

        Called once for each batch, before the queue, and never for a retry. If `dropped`, the queue is full: the result
        is counted as lost. Work of more than 10 ms is split, as in `Processor.process`.
        """
        return (batch,)

    @abstractmethod
    async def export(self, batch: Batch) -> None:
        """Delivers one batch and leaves it unchanged. Raises `Retryable` or `Permanent` on failure.

        Called by `num_consumers` consumers at the same time, and cancelled after the configured `timeout`.
        """


class Extension(Component):
    """A service outside the pipelines, such as health checks, storage or authentication."""

    async def __aenter__(self) -> Self:
        """Opens its resources. Raises `CannotStart` with one sentence for the user if it cannot."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes its resources. Safe without `__aenter__`."""
        return


@runtime_checkable
class PacedEmit(Protocol):
    """An `Emit` with a variant for sources that can wait without losing data, such as files."""

    async def paced(self, batch: Batch, *, transport: str = "") -> None:
        """As `Emit`, but a full queue in memory delays the source as long as its exporter makes progress.

        So a file is read as fast as the slowest working exporter. An exporter that fails delays nobody.
        """


@runtime_checkable
class ImmediateEmit(Protocol):
    """An `Emit` with a variant that does not wait, for sources of many small batches."""

    def at_once(self, batch: Batch, *, transport: str = "") -> bool:
        """Whether the batch was accepted, as `Emit` accepts it. If not, nothing has happened: await `Emit` instead.

        A batch is accepted at once if no processor has to see it and if every exporter's queue is in memory and has
        room. That takes a third of the CPU time of `Emit`.
        """


class Insist:
    """An `Emit` that emits a refused batch again until it is accepted: back-pressure for sources that can wait."""

    def __init__(self, emit: Emit, clock: Clock, wait: float = 0.01, longest: float = 0.5) -> None:
        """`wait` is the time in seconds before the first repetition; it doubles up to `longest`."""
        self._emit: Emit = emit.paced if isinstance(emit, PacedEmit) else emit
        self._clock = clock
        self._wait = wait
        self._longest = longest

    async def __call__(self, batch: Batch, *, transport: str = "") -> None:
        wait = self._wait
        while True:
            try:
                return await self._emit(batch, transport=transport)
            except Refused as refused:
                await self._clock.sleep(max(wait, refused.after or 0.0))
                wait = min(wait * 2, self._longest)
