"""The metrics of the collector about itself, with the names of the OpenTelemetry Collector where it has them.

They are on the page of own metrics (`service::telemetry::metrics`). Components add theirs.
"""

from collections.abc import Iterator

from otel_zernel.component.declaration import DeclaredMetric, by_name, own

_NOUNS = {
    "metric_points": "{datapoints}",
    "spans": "{spans}",
    "log_records": "{records}",
    "profile_samples": "{samples}",
}
_RECEIVER = ("receiver", "transport")
_EXPORTER = ("exporter",)
_REMOTE = "while the exporter has a queue"


def _items(prefix: str, described: str, attributes: tuple[str, ...], when: str) -> Iterator[DeclaredMetric]:
    """A counter for each signal. `described` has a place for the noun."""
    for noun, unit in _NOUNS.items():
        description = described.format(noun.replace("_", " ").capitalize())
        yield DeclaredMetric(f"otelcol_{prefix}_{noun}", unit, "sum", description, attributes, when, own=True)


def _gauge(name: str, unit: str, description: str, attributes: tuple[str, ...], when: str) -> DeclaredMetric:
    return DeclaredMetric(name, unit, "gauge", description, attributes, when, own=True)


DROPPED_ITEMS = own(
    "zernel.dropped_items",
    "{item}",
    "Dropped metric points, spans, log records and profile samples, by component and reason.",
    ("kind", "component", "reason"),
    "from the first loss on",
)
RECEIVER_RESTARTS = own(
    "zernel.receiver.restarts",
    "{restart}",
    "Restarts of crashed receivers.",
    ("receiver",),
)
QUEUE_BYTES = _gauge("zernel.exporter.queue.bytes", "By", "Memory of the waiting batches.", _EXPORTER, _REMOTE)
QUEUE_AGE = _gauge(
    "zernel.exporter.queue.oldest_age", "s", "Time that the oldest batch has waited.", _EXPORTER, _REMOTE
)
METRICS = by_name(
    *_items("receiver_accepted", "{} that the pipelines accepted.", _RECEIVER, "from the first one on"),
    *_items(
        "receiver_refused",
        "{} that the pipelines refused; their source still has them.",
        _RECEIVER,
        "from the first one on",
    ),
    own(
        "otelcol_scraper_scraped_metric_points",
        "{datapoints}",
        "Metric points that a scraper read.",
        ("receiver", "scraper"),
        "from the first scrape on",
    ),
    own(
        "otelcol_scraper_errored_metric_points",
        "{datapoints}",
        "Metric points that a scraper failed to read.",
        ("receiver", "scraper"),
        "from the first failure on",
    ),
    own(
        "otelcol_processor_incoming_items",
        "{items}",
        "Items into a processor.",
        ("processor", "pipeline", "otel.signal"),
    ),
    own(
        "otelcol_processor_outgoing_items",
        "{items}",
        "Items out of a processor.",
        ("processor", "pipeline", "otel.signal"),
    ),
    *_items("exporter_sent", "{} that the exporter delivered.", _EXPORTER, "from the first one on"),
    *_items("exporter_send_failed", "{} that the exporter gave up.", _EXPORTER, "from the first one on"),
    *_items(
        "exporter_enqueue_failed", "{} that the exporter's queue did not take.", _EXPORTER, "from the first one on"
    ),
    _gauge("otelcol_exporter_queue_size", "{batches}", "Waiting, in units of `sizer`.", _EXPORTER, _REMOTE),
    _gauge("otelcol_exporter_queue_capacity", "{batches}", "The most that may wait.", _EXPORTER, _REMOTE),
    QUEUE_BYTES,
    QUEUE_AGE,
    _gauge("otelcol_exporter_in_flight_requests", "{request}", "Taken from the queue, not ended.", _EXPORTER, _REMOTE),
    DROPPED_ITEMS,
    RECEIVER_RESTARTS,
    own("otelcol_process_uptime", "s", "Time since the collector started.", when="always"),
    own("otelcol_process_cpu_seconds", "s", "CPU time of the collector's process, user and system.", when="always"),
    _gauge("otelcol_process_memory_rss", "By", "Resident memory of the collector's process.", (), "always"),
)
