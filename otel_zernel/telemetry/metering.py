"""The collector's own metrics for as long as it runs: meter providers, and readers that reloads add and remove.

Importing the OpenTelemetry SDK takes 35 ms of CPU time, so a provider is made when metrics are first read. Counters add
up until then.
"""

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
from otel_zernel.telemetry.instruments import Instruments
from otel_zernel.telemetry.readers import Collect, reading

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from collections.abc import Callable, Sequence

from opentelemetry import metrics as api
from opentelemetry.context import Context
from opentelemetry.util.types import Attributes, AttributeValue


class DeferredMeterProvider(MeterProvider):
    """Makes the real provider when `provide` is called, or when a histogram is created."""

    def __init__(self, make: Callable[[], MeterProvider]) -> None:
        """`make` may take long. It is called once, by the thread that needs the provider first."""
        self._make = make
        self._provider: MeterProvider | None = None
        self._making = threading.Lock()
        self._changing = threading.Lock()
        self._meters: dict[Hashable, _DeferredMeter] = {}

    def get_meter(
        self, name: str, version: str | None = None, schema_url: str | None = None, attributes: Attributes = None
    ) -> api.Meter:
        def real(provider: MeterProvider) -> api.Meter:
            return provider.get_meter(name, version, schema_url, attributes)

        with self._changing:
            if self._provider:
                return real(self._provider)
            return self._meters.setdefault((name, version, schema_url), _DeferredMeter(name, real, self))

    def provide(self) -> MeterProvider:
        """The real provider. It has all instruments, with the sums of before."""
        with self._making:
            if self._provider is None:
                provider = self._make()
                with self._changing:
                    self._provider = provider
                    for meter in self._meters.values():
                        meter.begin(provider)
            return self._provider

    @property
    def changing(self) -> threading.Lock:
        """Held while instruments become real. Counters wait for this short time only, not for `make`."""
        return self._changing


class _DeferredMeter(api.NoOpMeter):
    def __init__(self, name: str, real: Callable[[MeterProvider], api.Meter], provider: DeferredMeterProvider) -> None:
        super().__init__(name)
        self._real_of = real
        self._provider = provider
        self._real: api.Meter | None = None
        self._waiting: list[Callable[[api.Meter], object]] = []
        """Each makes one instrument real."""

    def begin(self, provider: MeterProvider) -> None:
        """Makes all instruments real. The caller holds `changing`."""
        self._real = meter = self._real_of(provider)
        for make_real in self._waiting:
            make_real(meter)
        self._waiting.clear()

    def create_counter(self, name: str, unit: str = "", description: str = "") -> api.Counter:
        with self._provider.changing:
            if self._real:
                return self._real.create_counter(name, unit, description)
            sums = _Sums(self._provider.changing)
            self._waiting.append(lambda meter: sums.begin(meter.create_counter(name, unit, description)))
            return _DeferredCounter(name, sums)

    def create_up_down_counter(self, name: str, unit: str = "", description: str = "") -> api.UpDownCounter:
        with self._provider.changing:
            if self._real:
                return self._real.create_up_down_counter(name, unit, description)
            sums = _Sums(self._provider.changing)
            self._waiting.append(lambda meter: sums.begin(meter.create_up_down_counter(name, unit, description)))
            return _DeferredUpDownCounter(name, sums)

    def create_histogram(
        self,
        name: str,
        unit: str = "",
        description: str = "",
        *,
        explicit_bucket_boundaries_advisory: Sequence[float] | None = None,
    ) -> api.Histogram:
        bounds = explicit_bucket_boundaries_advisory
        real = self._real_of(self._provider.provide())
        return real.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=bounds)

    def create_gauge(self, name: str, unit: str = "", description: str = "") -> api._Gauge:
        return self._real_of(self._provider.provide()).create_gauge(name, unit, description)

    def create_observable_counter(
        self, name: str, callbacks: Sequence[api.CallbackT] | None = None, unit: str = "", description: str = ""
    ) -> api.ObservableCounter:
        self._when_real(lambda meter: meter.create_observable_counter(name, callbacks, unit, description))
        return api.NoOpObservableCounter(name, callbacks, unit, description)

    def create_observable_gauge(
        self, name: str, callbacks: Sequence[api.CallbackT] | None = None, unit: str = "", description: str = ""
    ) -> api.ObservableGauge:
        self._when_real(lambda meter: meter.create_observable_gauge(name, callbacks, unit, description))
        return api.NoOpObservableGauge(name, callbacks, unit, description)

    def create_observable_up_down_counter(
        self, name: str, callbacks: Sequence[api.CallbackT] | None = None, unit: str = "", description: str = ""
    ) -> api.ObservableUpDownCounter:
        self._when_real(lambda meter: meter.create_observable_up_down_counter(name, callbacks, unit, description))
        return api.NoOpObservableUpDownCounter(name, callbacks, unit, description)

    def _when_real(self, make_real: Callable[[api.Meter], object]) -> None:
        with self._provider.changing:
            make_real(self._real) if self._real else self._waiting.append(make_real)


class _Sums:
    """The sums of one counter by attributes, until its real counter takes them over."""

    def __init__(self, changing: threading.Lock) -> None:
        self._changing = changing
        self._sums: dict[frozenset[tuple[str, AttributeValue]], float] = {}
        self._real: api.Counter | api.UpDownCounter | None = None

    def add(self, amount: float, attributes: Attributes, context: Context | None) -> None:
        if self._real is None:
            with self._changing:
                if self._real is None:
                    key = frozenset((attributes or {}).items())
                    self._sums[key] = self._sums.get(key, 0) + amount
                    return
        self._real.add(amount, attributes, context)

    def begin(self, real: api.Counter | api.UpDownCounter) -> None:
        """The caller holds `changing`."""
        for attributes, total in self._sums.items():
            real.add(total, dict(attributes))
        self._sums.clear()
        self._real = real


class _DeferredCounter(api.NoOpCounter):
    def __init__(self, name: str, sums: _Sums) -> None:
        super().__init__(name)
        self._sums = sums

    def add(self, amount: float, attributes: Attributes = None, context: Context | None = None) -> None:
        self._sums.add(amount, attributes, context)


class _DeferredUpDownCounter(api.NoOpUpDownCounter):
    def __init__(self, name: str, sums: _Sums) -> None:
        super().__init__(name)
        self._sums = sums

    def add(self, amount: float, attributes: Attributes = None, context: Context | None = None) -> None:
        self._sums.add(amount, attributes, context)


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
