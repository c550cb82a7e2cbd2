"""Aggregation temporality: converts sums and histograms between delta and cumulative, with bounded memory."""

from otel_zernel_libraries.histograms.temporality.conversion import Conversion as Conversion
from otel_zernel_libraries.histograms.temporality.conversion import ToCumulative as ToCumulative
from otel_zernel_libraries.histograms.temporality.conversion import ToDelta as ToDelta
from otel_zernel_libraries.histograms.temporality.exporting import ConvertingExporter as ConvertingExporter
from otel_zernel_libraries.histograms.temporality.exporting import totals_in as totals_in
from otel_zernel_libraries.histograms.temporality.memory import MovingBounds as MovingBounds
from otel_zernel_libraries.histograms.temporality.memory import SeriesMemoryConfig as SeriesMemoryConfig
from otel_zernel_libraries.histograms.temporality.memory import Temporality as Temporality
from otel_zernel_libraries.histograms.temporality.settled import SettledBounds as SettledBounds
from otel_zernel_libraries.histograms.temporality.settled import settled_bounds as settled_bounds
