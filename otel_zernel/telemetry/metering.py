"""The collector's own metrics for as long as it runs: meter providers, and readers that reloads add and remove."""

import asyncio
import logging
import threading
from collections.abc import Hashable, Mapping
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from uuid import uuid4

from opentelemetry.metrics import MeterProvider, NoOpMeterProvider

from otel_zernel import __version__
from otel_zernel.clock import Clock
from otel_zernel.config.telemetry import MetricReader, TelemetrySettings
from otel_zernel.errors import CannotStart
from otel_zernel.runtime.garbage import collection_deferred
from otel_zernel.runtime.tasks import cancel
from otel_zernel.telemetry.deferred import DeferredMeterProvider
from otel_zernel.telemetry.instruments import Instruments
from otel_zernel.telemetry.readers import Collect, reading

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData


class MeterCollection:
    """The meters of one resource, and the present values of their instruments."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        """`resource` has the attributes of the collector."""
        self.meters = DeferredMeterProvider(self._make)
        self._resource = resource
        self._reader: InMemoryMetricReader | None = None
        self._turn = threading.Lock()

    def collect(self) -> "MetricsData | None":
        """The present values, None if there are none. Several readers, some in threads, share the collection.

        The first call imports the SDK, which takes 35 ms of CPU time.
        """
        self.meters.provide()
        with self._turn:
            return self._reader.get_metrics_data() if self._reader else None

    def _make(self) -> MeterProvider:
        with collection_deferred():  # modules and classes are no garbage
            from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
            from opentelemetry.sdk.metrics.export import InMemoryMetricReader
            from opentelemetry.sdk.resources import Resource

        self._reader = InMemoryMetricReader()
        resource = Resource.create(dict(self._resource))
        return SdkMeterProvider(metric_readers=[self._reader], resource=resource, shutdown_on_exit=False)


RETRY: Final = 30.0
"""Seconds until the next attempt if the port of a page is taken."""
_TAKEN: Final = (
    "%s. The collector runs without this page, and tries again every %g s. For a second collector on this machine, set"
    " pull::exporter::prometheus::port to another port, or service::telemetry::metrics::level to none."
)
_logger = logging.getLogger("otel_zernel.telemetry")


class Measuring(NamedTuple):
    """The meter provider of the components, and the instruments of the collector."""

    meters: MeterProvider
    instruments: Instruments
    collect: Collect


class _RunningReader(NamedTuple):
    settings: MetricReader
    meters: Hashable
    stack: AsyncExitStack


def meters_of(telemetry: TelemetrySettings) -> Hashable:
    """Identifies the meter provider of the settings. Other readers and another log need no other provider."""
    return tuple(sorted(telemetry.resource.items())) if _readers(telemetry) else None


def _readers(telemetry: TelemetrySettings) -> list[MetricReader]:
    return telemetry.metrics.readers if telemetry.metrics.level != "none" else []


class Metering:
    """Owns the providers and the readers. All readers of a provider see the same values."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._identity = {
            "service.name": "otel-zernel",
            "service.version": __version__,
            "service.instance.id": str(uuid4()),
        }
        self._measuring: dict[Hashable, Measuring] = {}
        self._running: list[_RunningReader] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for reader in self._running:
            await reader.stack.aclose()

    def measuring(self, telemetry: TelemetrySettings) -> Measuring:
        """The provider and the instruments for the settings. Equal `meters_of` have the same ones."""
        meters = meters_of(telemetry)
        if meters not in self._measuring:
            self._measuring[meters] = self._measure(telemetry)
        return self._measuring[meters]

    async def stop(self, telemetry: TelemetrySettings) -> None:
        """Stops the readers that the settings do not want, so that their ports are free."""
        unwanted = [reader for reader in self._running if not self._is_wanted(reader, telemetry)]
        self._running = [reader for reader in self._running if reader not in unwanted]
        for reader in unwanted:
            await reader.stack.aclose()

    async def start(self, telemetry: TelemetrySettings) -> None:
        """Starts the readers that the settings want and that do not run. Raises `CannotStart`.

        A page whose port is taken is a warning: it must not end a second collector on a machine. It starts later.
        """
        running = [reader.settings for reader in self._running if self._is_wanted(reader, telemetry)]
        for settings in _readers(telemetry):
            if settings in running:
                running.remove(settings)
                continue
            stack, collect = AsyncExitStack(), self.measuring(telemetry).collect
            try:
                await stack.enter_async_context(reading(settings, collect, self._clock))
            except CannotStart as error:
                if not error.address_is_taken:
                    raise
                _logger.warning(_TAKEN, error, RETRY)
                stack.push_async_callback(cancel, asyncio.create_task(self._serve_when_free(settings, collect)))
            self._running.append(_RunningReader(settings, meters_of(telemetry), stack))

    async def _serve_when_free(self, settings: MetricReader, collect: Collect) -> None:
        while True:
            await self._clock.sleep(RETRY)
            with suppress(CannotStart):
                async with reading(settings, collect, self._clock):
                    await asyncio.Event().wait()

    def _is_wanted(self, reader: _RunningReader, telemetry: TelemetrySettings) -> bool:
        return reader.settings in _readers(telemetry) and reader.meters == meters_of(telemetry)

    def _measure(self, telemetry: TelemetrySettings) -> Measuring:
        if not _readers(telemetry):
            meters: MeterProvider = NoOpMeterProvider()
            return Measuring(meters, Instruments(meters.get_meter("otel_zernel")), lambda: None)

        collection = MeterCollection({**self._identity, **telemetry.resource})
        instruments = Instruments(collection.meters.get_meter("otel_zernel"))
        instruments.watch_process(self._clock, self._started)
        return Measuring(collection.meters, instruments, collection.collect)
