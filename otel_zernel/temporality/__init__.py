"""Aggregation temporality: converts sums and histograms between delta and cumulative, with bounded memory."""

from otel_zernel.temporality.config import SeriesMemoryConfig, Temporality
from otel_zernel.temporality.conversion import Conversion
from otel_zernel.temporality.cumulative import ToCumulative
from otel_zernel.temporality.delta import ToDelta

__all__ = ["Conversion", "SeriesMemoryConfig", "Temporality", "ToCumulative", "ToDelta"]
