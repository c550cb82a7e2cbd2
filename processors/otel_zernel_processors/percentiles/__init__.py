"""Percentiles of gauges, sums and histograms, from HDR histograms."""

from otel_zernel_processors.percentiles.processor import PercentilesProcessor

__all__ = ["PercentilesProcessor"]
