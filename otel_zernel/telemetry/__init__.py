"""What the collector says about itself: instruments (its metrics), readers (who gets them), logs."""

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
