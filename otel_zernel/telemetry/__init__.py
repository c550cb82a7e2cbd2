"""The collector's own telemetry: instruments (its metrics), readers (serve or send the metrics) and logs."""

from otel_zernel.telemetry.instruments import (
    ExporterMetrics,
    Instruments,
    ItemCounter,
    MeasuredQueue,
    ProcessorMetrics,
    ReceiverMetrics,
    ScraperMetrics,
)

__all__ = [
    "ExporterMetrics",
    "Instruments",
    "ItemCounter",
    "MeasuredQueue",
    "ProcessorMetrics",
    "ReceiverMetrics",
    "ScraperMetrics",
]
