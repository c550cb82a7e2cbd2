"""The collector's own metrics. They have the names of the OpenTelemetry Collector, and use the OpenTelemetry SDK."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from opentelemetry.metrics import CallbackOptions, Counter, Meter, Observation

from otel_zernel.batch import SIGNALS, Batch, ItemCount, Signal
from otel_zernel.clock import Clock
from otel_zernel.runtime.memory import resident_memory
from otel_zernel.telemetry.declared import DROPPED_ITEMS, METRICS, QUEUE_AGE, QUEUE_BYTES, RECEIVER_RESTARTS

_EXPORTER_OUTCOMES = ("sent", "send_failed", "enqueue_failed")
_ITEM_NAMES: Mapping[Signal, tuple[str, str]] = {
    "metrics": ("metric_points", "{datapoints}"),
    "traces": ("spans", "{spans}"),
    "logs": ("log_records", "{records}"),
    "profiles": ("profile_samples", "{samples}"),
}
"""The nouns and units of the OpenTelemetry Collector's item counters."""


class MeasuredQueue(Protocol):
    """The values that the queue gauges report."""

    capacity: int

    @property
    def size(self) -> int:
        """In the unit of the capacity."""

    @property
    def bytes(self) -> int:
        """Those in memory."""

    @property
    def oldest_age(self) -> float:
        """Seconds."""


@dataclass(slots=True)
class RunningTotal:
    """One series of a counter. It is reported from its first addition on.

    The SDK reads it when it collects. Two additions to the SDK's own counters took 58 of the 126 us that a batch of 10
    points costs.
    """

    attributes: dict[str, str]
    value: int | None = None

    def add(self, count: int) -> None:
        self.value = (self.value or 0) + count


@dataclass(slots=True)
class RunningTotals:
    """The series of one counter, by their attributes."""

    series: dict[tuple[tuple[str, str], ...], RunningTotal] = field(default_factory=dict)

    def of(self, attributes: dict[str, str]) -> RunningTotal:
        """The series with these attributes, the same for each call."""
        return self.series.setdefault(tuple(sorted(attributes.items())), RunningTotal(attributes))

    def observe(self, _: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(series.value, series.attributes)
            for series in list(self.series.values())
            if series.value is not None
        ]


@dataclass(frozen=True, slots=True)
class ItemCounter:
    """Counts the items of batches in `otelcol_<outcome>_metric_points`, `..._spans` and so on."""

    totals: Mapping[Signal, RunningTotal]

    def __call__(self, batch: Batch) -> None:
        for signal in batch.signals:
            self.totals[signal].add(batch.count_of(signal))

    def count(self, counts: ItemCount) -> None:
        """As the call, for a batch that cannot be read, or that the pipelines have edited."""
        for signal, count in zip(SIGNALS, counts, strict=True):
            if count:
                self.totals[signal].add(count)


class ReceiverMetrics(NamedTuple):
    """Items of one receiver that the pipelines accepted, and that they refused."""

    accepted: ItemCounter
    refused: ItemCounter


class ScraperMetrics(NamedTuple):
    """Points that one scraper read, and that it failed to read."""

    scraped: Callable[[int], None]
    errored: Callable[[int], None]


class ProcessorMetrics(NamedTuple):
    """Items into and out of one processor of one pipeline."""

    incoming: Callable[[int], None]
    outgoing: Callable[[int], None]


class ExporterMetrics(NamedTuple):
    """Items that one exporter sent, failed to send, and failed to enqueue.

    `watch_queue` adds the exporter's queue and its requests in flight to the gauges, and returns the function that
    removes them.
    """

    sent: ItemCounter
    send_failed: ItemCounter
    enqueue_failed: ItemCounter
    watch_queue: Callable[[MeasuredQueue, Collection[object]], Callable[[], None]]


@dataclass(slots=True)
class ObservableInstrument:
    """One observable instrument with many sources. The SDK uses only the first callback registered for a name."""

    sources: list[tuple[Callable[[], float], dict[str, str]]] = field(default_factory=list)

    def observe(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(read(), attributes) for read, attributes in self.sources]

    def add(self, read: Callable[[], float], attributes: dict[str, str]) -> Callable[[], None]:
        """Adds a source. The result removes it."""
        source = (read, attributes)
        self.sources.append(source)
        return lambda: self.sources.remove(source)


class Instruments:
    """All instruments of the collector itself. Each is created once and shared by the components."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._totals: dict[str, RunningTotals] = {}
        """By the name of the counter."""
        self._dropped = self._counter(*DROPPED_ITEMS.counter)
        self._restarts = self._counter(*RECEIVER_RESTARTS.counter)
        self._queue_size = self._gauge("otelcol_exporter_queue_size")
        self._queue_capacity = self._gauge("otelcol_exporter_queue_capacity")
        self._queue_bytes = self._gauge(QUEUE_BYTES.name, "By")
        self._queue_age = self._gauge(QUEUE_AGE.name, "s")
        self._in_flight = self._gauge("otelcol_exporter_in_flight_requests", "{request}")

    def dropper(self, kind: str, component: str) -> Callable[[int, str], None]:
        """The function `drop(count, reason)` of one component."""
        attributes = {"kind": kind.removesuffix("s"), "component": component}
        return lambda count, reason: self._dropped.add(count, {**attributes, "reason": reason})

    def restarted(self, receiver: str) -> None:
        self._restarts.add(1, {"receiver": receiver})

    def receiver(self, receiver: str, transport: str = "") -> ReceiverMetrics:
        attributes = {"receiver": receiver, "transport": transport}
        accepted, refused = (self._items(f"receiver_{outcome}", attributes) for outcome in ("accepted", "refused"))
        return ReceiverMetrics(accepted, refused)

    def scraper(self, receiver: str) -> ScraperMetrics:
        attributes = {"receiver": receiver, "scraper": receiver}
        names = ("otelcol_scraper_scraped_metric_points", "otelcol_scraper_errored_metric_points")
        return ScraperMetrics(*(self._total(name, "{datapoints}", attributes).add for name in names))

    def processor(self, processor: str, pipeline: str) -> ProcessorMetrics:
        attributes = {"processor": processor, "pipeline": pipeline}
        if (signal := pipeline.partition("/")[0]) in SIGNALS:  # a pipeline of another id carries all signals
            attributes["otel.signal"] = signal
        names = ("otelcol_processor_incoming_items", "otelcol_processor_outgoing_items")
        return ProcessorMetrics(*(self._total(name, "{items}", attributes).add for name in names))

    def exporter(self, exporter: str) -> ExporterMetrics:
        attributes = {"exporter": exporter}

        def watch_queue(queue: MeasuredQueue, in_flight: Collection[object]) -> Callable[[], None]:
            removals = [
                self._queue_size.add(lambda: queue.size, attributes),
                self._queue_capacity.add(lambda: queue.capacity, attributes),
                self._queue_bytes.add(lambda: queue.bytes, attributes),
                self._queue_age.add(lambda: queue.oldest_age, attributes),
                self._in_flight.add(lambda: len(in_flight), attributes),
            ]

            def remove_all() -> None:
                for remove in removals:
                    remove()

            return remove_all

        sent, failed, refused = (self._items(f"exporter_{outcome}", attributes) for outcome in _EXPORTER_OUTCOMES)
        return ExporterMetrics(sent, failed, refused, watch_queue)

    def watch_process(self, clock: Clock, start: float) -> None:
        """Reports the uptime (s) since the monotonic time `start`, the CPU time (s) and the resident memory (By)."""
        self._observable_counter("otelcol_process_uptime", "s", lambda: clock.monotonic() - start)
        self._observable_counter("otelcol_process_cpu_seconds", "s", time.process_time)
        self._gauge("otelcol_process_memory_rss", "By").add(resident_memory, {})

    def _counter(self, name: str, unit: str, description: str = "") -> Counter:
        return self._meter.create_counter(name, unit, description)

    def _total(self, name: str, unit: str, attributes: dict[str, str]) -> RunningTotal:
        if name not in self._totals:
            self._totals[name] = totals = RunningTotals()
            self._meter.create_observable_counter(name, [totals.observe], unit, METRICS[name].description)
        return self._totals[name].of(attributes)

    def _items(self, outcome: str, attributes: dict[str, str]) -> ItemCounter:
        return ItemCounter(
            {
                signal: self._total(f"otelcol_{outcome}_{noun}", unit, attributes)
                for signal, (noun, unit) in _ITEM_NAMES.items()
            }
        )

    def _gauge(self, name: str, unit: str = "{batches}") -> ObservableInstrument:
        gauge = ObservableInstrument()
        self._meter.create_observable_gauge(name, [gauge.observe], unit, METRICS[name].description)
        return gauge

    def _observable_counter(self, name: str, unit: str, read: Callable[[], float]) -> None:
        counter = ObservableInstrument([(read, {})])
        self._meter.create_observable_counter(name, [counter.observe], unit, METRICS[name].description)
