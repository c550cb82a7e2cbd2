"""The collector's metrics about itself: the Collector's names, the OpenTelemetry SDK's machinery."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from opentelemetry.metrics import CallbackOptions, Counter, Meter, Observation

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock

_EXPORTER_OUTCOMES = ("sent", "send_failed", "enqueue_failed")


class MeasuredQueue(Protocol):
    """What the queue gauges read."""

    size: int
    capacity: int


@dataclass(frozen=True, slots=True)
class ItemCounter:
    """Counts a batch's items in `otelcol_<what>_metric_points` and `otelcol_<what>_spans`."""

    points: Counter
    spans: Counter
    attributes: dict[str, str]

    def __call__(self, batch: Batch) -> None:
        if batch.has_metrics:
            self.points.add(batch.point_count, self.attributes)
        if batch.has_spans:
            self.spans.add(batch.span_count, self.attributes)


@dataclass(frozen=True, slots=True)
class ReceiverMetrics:
    """What one receiver's batches met."""

    accepted: ItemCounter
    refused: ItemCounter


@dataclass(frozen=True, slots=True)
class ScraperMetrics:
    """Points that one scraper got, and that it did not get."""

    scraped: Callable[[int], None]
    errored: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ProcessorMetrics:
    """Items into and out of one processor of one pipeline."""

    incoming: Callable[[int], None]
    outgoing: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ExporterMetrics:
    """What became of one exporter's batches; `watch_queue` publishes its queue."""

    sent: ItemCounter
    send_failed: ItemCounter
    enqueue_failed: ItemCounter
    watch_queue: Callable[[MeasuredQueue], None]


@dataclass(slots=True)
class Gauge:
    """One observable instrument over many sources: the SDK keeps only the first callback of a name."""

    sources: list[tuple[Callable[[], float], dict[str, str]]] = field(default_factory=list)

    def observe(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(read(), attributes) for read, attributes in self.sources]

    def add(self, read: Callable[[], float], attributes: dict[str, str]) -> None:
        self.sources.append((read, attributes))


class Instruments:
    """Every instrument of the collector itself, made once and handed out per component."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._dropped = self._counter("zernel.dropped_items", "{item}", "Items lost, by component and reason.")
        self._restarts = self._counter("zernel.receiver.restarts", "{restart}", "Restarts of crashed receivers.")
        self._queue_size = self._gauge("otelcol_exporter_queue_size")
        self._queue_capacity = self._gauge("otelcol_exporter_queue_capacity")

    def dropper(self, kind: str, component: str) -> Callable[[int, str], None]:
        """The `drop(count, reason)` of one component."""
        of = {"kind": kind.removesuffix("s"), "component": component}
        return lambda count, reason: self._dropped.add(count, {**of, "reason": reason})

    def restarted(self, receiver: str) -> None:
        self._restarts.add(1, {"receiver": receiver})

    def receiver(self, receiver: str, transport: str = "") -> ReceiverMetrics:
        of = {"receiver": receiver, "transport": transport}
        return ReceiverMetrics(self._items("receiver_accepted", of), self._items("receiver_refused", of))

    def scraper(self, receiver: str) -> ScraperMetrics:
        of = {"receiver": receiver, "scraper": receiver}
        names = ("otelcol_scraper_scraped_metric_points", "otelcol_scraper_errored_metric_points")
        return ScraperMetrics(*(self._add(name, "{datapoints}", of) for name in names))

    def processor(self, processor: str, pipeline: str) -> ProcessorMetrics:
        of = {"processor": processor, "pipeline": pipeline}
        names = ("otelcol_processor_incoming_items", "otelcol_processor_outgoing_items")
        return ProcessorMetrics(*(self._add(name, "{items}", of) for name in names))

    def exporter(self, exporter: str) -> ExporterMetrics:
        of = {"exporter": exporter}

        def watch_queue(queue: MeasuredQueue) -> None:
            self._queue_size.add(lambda: queue.size, of)
            self._queue_capacity.add(lambda: queue.capacity, of)

        sent, failed, refused = (self._items(f"exporter_{what}", of) for what in _EXPORTER_OUTCOMES)
        return ExporterMetrics(sent, failed, refused, watch_queue)

    def watch_process(self, clock: Clock) -> None:
        """Publishes this process's uptime (s), CPU time (s) and resident memory (By)."""
        import psutil

        process, start = psutil.Process(), clock.monotonic()
        self._observable("otelcol_process_uptime", "s", lambda: clock.monotonic() - start)
        self._observable("otelcol_process_cpu_seconds", "s", lambda: sum(process.cpu_times()[:2]))
        self._gauge("otelcol_process_memory_rss", "By").add(lambda: process.memory_info().rss, {})

    def _counter(self, name: str, unit: str, description: str = "") -> Counter:
        return self._meter.create_counter(name, unit, description)

    def _add(self, name: str, unit: str, attributes: dict[str, str]) -> Callable[[int], None]:
        counter = self._counter(name, unit)
        return lambda count: counter.add(count, attributes)

    def _items(self, what: str, attributes: dict[str, str]) -> ItemCounter:
        points = self._counter(f"otelcol_{what}_metric_points", "{datapoints}")
        return ItemCounter(points, self._counter(f"otelcol_{what}_spans", "{spans}"), attributes)

    def _gauge(self, name: str, unit: str = "{batches}") -> Gauge:
        gauge = Gauge()
        self._meter.create_observable_gauge(name, [gauge.observe], unit)
        return gauge

    def _observable(self, name: str, unit: str, read: Callable[[], float]) -> None:
        gauge = Gauge([(read, {})])
        self._meter.create_observable_counter(name, [gauge.observe], unit)
