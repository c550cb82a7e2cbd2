"""The collector's own metrics for as long as it runs: meter providers, and readers that reloads add and remove."""

import threading
from collections.abc import Hashable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from opentelemetry.metrics import MeterProvider, NoOpMeterProvider

from otel_zernel import __version__
from otel_zernel.clock import Clock
from otel_zernel.config.telemetry import MetricReader, TelemetrySettings
from otel_zernel.telemetry.instruments import Instruments
from otel_zernel.telemetry.readers import Collect, reading

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData


@dataclass(frozen=True, slots=True)
class Measuring:
    """The meter provider of the components, and the instruments of the collector."""

    meters: MeterProvider
    instruments: Instruments
    collect: Collect


@dataclass(frozen=True, slots=True)
class _RunningReader:
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
        """Starts the readers that the settings want and that do not run. Raises `CannotStart`."""
        running = [reader.settings for reader in self._running if self._is_wanted(reader, telemetry)]
        for settings in _readers(telemetry):
            if settings in running:
                running.remove(settings)
                continue
            stack = AsyncExitStack()
            await stack.enter_async_context(reading(settings, self.measuring(telemetry).collect, self._clock))
            self._running.append(_RunningReader(settings, meters_of(telemetry), stack))

    def _is_wanted(self, reader: _RunningReader, telemetry: TelemetrySettings) -> bool:
        return reader.settings in _readers(telemetry) and reader.meters == meters_of(telemetry)

    def _measure(self, telemetry: TelemetrySettings) -> Measuring:
        if not _readers(telemetry):
            meters: MeterProvider = NoOpMeterProvider()
            return Measuring(meters, Instruments(meters.get_meter("otel_zernel")), lambda: None)

        from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.resources import Resource

        reader = InMemoryMetricReader()
        resource = Resource.create({**self._identity, **telemetry.resource})
        meters = SdkMeterProvider(metric_readers=[reader], resource=resource, shutdown_on_exit=False)
        instruments = Instruments(meters.get_meter("otel_zernel"))
        instruments.watch_process(self._clock, self._started)
        turn = threading.Lock()

        def collect() -> "MetricsData | None":
            with turn:  # several readers, some in threads, share the collection
                return reader.get_metrics_data()

        return Measuring(meters, instruments, collect)
