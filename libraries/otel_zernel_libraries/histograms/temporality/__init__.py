"""Aggregation temporality: converts sums and histograms between delta and cumulative, with bounded memory."""

from otel_zernel_libraries.histograms.temporality.conversion import Conversion, ToCumulative, ToDelta
from otel_zernel_libraries.histograms.temporality.exporting import ConvertingExporter, totals_in
from otel_zernel_libraries.histograms.temporality.memory import MovingBounds, SeriesMemoryConfig, Temporality
from otel_zernel_libraries.histograms.temporality.settled import SettledBounds, settled_bounds

__all__ = [
    "Conversion",
    "ConvertingExporter",
    "MovingBounds",
    "SeriesMemoryConfig",
    "SettledBounds",
    "Temporality",
    "ToCumulative",
    "ToDelta",
    "settled_bounds",
    "totals_in",
]
