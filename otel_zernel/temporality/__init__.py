"""Aggregation temporality: converts sums and histograms between delta and cumulative, with bounded memory."""

from otel_zernel.temporality.config import MovingBounds, SeriesMemoryConfig, Temporality
from otel_zernel.temporality.conversion import Conversion
from otel_zernel.temporality.cumulative import ToCumulative
from otel_zernel.temporality.delta import ToDelta
from otel_zernel.temporality.settled import SettledBounds, settled_bounds

__all__ = [
    "Conversion",
    "MovingBounds",
    "SeriesMemoryConfig",
    "SettledBounds",
    "Temporality",
    "ToCumulative",
    "ToDelta",
    "settled_bounds",
]
