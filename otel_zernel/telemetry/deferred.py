"""A meter provider that is made when the metrics are first read.

Importing the OpenTelemetry SDK takes 35 ms of CPU time, a tenth of a start. Counters add up until then. Callbacks of
observable instruments are only called when metrics are read.
"""

import threading
from collections.abc import Callable, Hashable, Sequence

from opentelemetry.context import Context
from opentelemetry.metrics import (
    CallbackT,
    Counter,
    Histogram,
    Meter,
    MeterProvider,
    NoOpCounter,
    NoOpMeter,
    NoOpObservableCounter,
    NoOpObservableGauge,
    NoOpObservableUpDownCounter,
    NoOpUpDownCounter,
    ObservableCounter,
    ObservableGauge,
    ObservableUpDownCounter,
    UpDownCounter,
    _Gauge,
)
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
    ) -> Meter:
        def real(provider: MeterProvider) -> Meter:
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


class _DeferredMeter(NoOpMeter):
    def __init__(self, name: str, real: Callable[[MeterProvider], Meter], provider: DeferredMeterProvider) -> None:
        super().__init__(name)
        self._real_of = real
        self._provider = provider
        self._real: Meter | None = None
        self._waiting: list[Callable[[Meter], object]] = []
        """Each makes one instrument real."""

    def begin(self, provider: MeterProvider) -> None:
        """Makes all instruments real. The caller holds `changing`."""
        self._real = meter = self._real_of(provider)
        for make_real in self._waiting:
            make_real(meter)
        self._waiting.clear()

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Counter:
        with self._provider.changing:
            if self._real:
                return self._real.create_counter(name, unit, description)
            sums = _Sums(self._provider.changing)
            self._waiting.append(lambda meter: sums.begin(meter.create_counter(name, unit, description)))
            return _DeferredCounter(name, sums)

    def create_up_down_counter(self, name: str, unit: str = "", description: str = "") -> UpDownCounter:
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
    ) -> Histogram:
        bounds = explicit_bucket_boundaries_advisory
        real = self._real_of(self._provider.provide())
        return real.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=bounds)

    def create_gauge(self, name: str, unit: str = "", description: str = "") -> _Gauge:
        return self._real_of(self._provider.provide()).create_gauge(name, unit, description)

    def create_observable_counter(
        self, name: str, callbacks: Sequence[CallbackT] | None = None, unit: str = "", description: str = ""
    ) -> ObservableCounter:
        self._when_real(lambda meter: meter.create_observable_counter(name, callbacks, unit, description))
        return NoOpObservableCounter(name, callbacks, unit, description)

    def create_observable_gauge(
        self, name: str, callbacks: Sequence[CallbackT] | None = None, unit: str = "", description: str = ""
    ) -> ObservableGauge:
        self._when_real(lambda meter: meter.create_observable_gauge(name, callbacks, unit, description))
        return NoOpObservableGauge(name, callbacks, unit, description)

    def create_observable_up_down_counter(
        self, name: str, callbacks: Sequence[CallbackT] | None = None, unit: str = "", description: str = ""
    ) -> ObservableUpDownCounter:
        self._when_real(lambda meter: meter.create_observable_up_down_counter(name, callbacks, unit, description))
        return NoOpObservableUpDownCounter(name, callbacks, unit, description)

    def _when_real(self, make_real: Callable[[Meter], object]) -> None:
        with self._provider.changing:
            make_real(self._real) if self._real else self._waiting.append(make_real)


class _Sums:
    """The sums of one counter by attributes, until its real counter takes them over."""

    def __init__(self, changing: threading.Lock) -> None:
        self._changing = changing
        self._sums: dict[frozenset[tuple[str, AttributeValue]], float] = {}
        self._real: Counter | UpDownCounter | None = None

    def add(self, amount: float, attributes: Attributes, context: Context | None) -> None:
        if self._real is None:
            with self._changing:
                if self._real is None:
                    key = frozenset((attributes or {}).items())
                    self._sums[key] = self._sums.get(key, 0) + amount
                    return
        self._real.add(amount, attributes, context)

    def begin(self, real: Counter | UpDownCounter) -> None:
        """The caller holds `changing`."""
        for attributes, total in self._sums.items():
            real.add(total, dict(attributes))
        self._sums.clear()
        self._real = real


class _DeferredCounter(NoOpCounter):
    def __init__(self, name: str, sums: _Sums) -> None:
        super().__init__(name)
        self._sums = sums

    def add(self, amount: float, attributes: Attributes = None, context: Context | None = None) -> None:
        self._sums.add(amount, attributes, context)


class _DeferredUpDownCounter(NoOpUpDownCounter):
    def __init__(self, name: str, sums: _Sums) -> None:
        super().__init__(name)
        self._sums = sums

    def add(self, amount: float, attributes: Attributes = None, context: Context | None = None) -> None:
        self._sums.add(amount, attributes, context)
