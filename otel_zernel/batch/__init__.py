"""What flows through a pipeline: batches of OTLP metrics, spans, log records and profiles."""

from otel_zernel.batch.batch import Batch
from otel_zernel.batch.counts import ItemCount, count_items, points
from otel_zernel.batch.signals import ALL_SIGNALS, SIGNALS, STABLE_SIGNALS, Signal
from otel_zernel.batch.splitting import split_batch
from otel_zernel.batch.thin import EXPLICIT_HISTOGRAMS

__all__ = [
    "ALL_SIGNALS",
    "EXPLICIT_HISTOGRAMS",
    "SIGNALS",
    "STABLE_SIGNALS",
    "Batch",
    "ItemCount",
    "Signal",
    "count_items",
    "points",
    "split_batch",
]
