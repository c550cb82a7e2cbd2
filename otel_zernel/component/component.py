"""The contract that all four kinds share, the context that each component gets, and the contract of extensions."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

from opentelemetry.metrics import Meter

from otel_zernel.batch import ALL_SIGNALS, STABLE_SIGNALS, Signal
from otel_zernel.clock import Clock
from otel_zernel.component.forms import DataForms
from otel_zernel.errors import CannotStart
from otel_zernel.health import Health
from otel_zernel.types import Section

Kind = Literal["receivers", "processors", "exporters", "extensions"]
Stability = Literal["development", "alpha", "beta", "stable"]
Logger = logging.LoggerAdapter[logging.Logger]


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
    listening: asyncio.Event = field(default_factory=asyncio.Event)
    """For receivers that serve: set by `run` when all servers listen. The collector is ready then."""

    @property
    def path(self) -> str:
        """The component's path in the configuration: `receivers::csv`."""
        return f"{self.kind}::{self.id}"

    def report(self, problem: str | None, *, is_absence: bool = False) -> None:
        """Shows a problem, one sentence, in the collector's health; None clears it. `is_absence`: only the device is
        not there."""
        self.health.report(self.path, problem, is_absence=is_absence)

    def extension(self, id_: str) -> "Extension":
        """The extension with this id. Raises `CannotStart` if it is not enabled."""
        if extension_ := self.extensions.get(id_):
            return extension_
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
    signals: frozenset[Signal] = frozenset(STABLE_SIGNALS)
    """The signals that it emits or accepts. A pipeline that carries none of them is a configuration error. An instance
    may accept fewer than its class: an exporter then gets no batches of the others. A processor gets them, and lets
    them pass."""

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
    def accepts(cls, config: Any) -> frozenset[Signal]:
        """Those of `signals` that an instance with a configuration can work on. `config` is an instance of `Config`.

        Called when the configuration is validated.
        """
        return cls.signals

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


class EnteredComponent(Component):
    """A component with resources: it is entered before its first work, and left after its last, or if entering fails.

    It must be safe to leave without entering.
    """

    def __init__(self, config: Any, context: Context) -> None:
        super().__init__(config, context)
        self._stack = AsyncExitStack()
        """Closes in `__aexit__` what `__aenter__` has opened, the last one first."""

    async def __aenter__(self) -> Self:
        """Opens its resources. Raises `CannotStart` with one sentence for the user if it cannot."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes its resources."""
        await self._stack.aclose()


class Extension(EnteredComponent):
    """A service outside the pipelines, such as health checks, storage or authentication."""

    works_alone: ClassVar[bool] = False
    """Whether a collector with this extension is useful without pipelines. Without such an extension, a configuration
    without pipelines is a mistake."""
