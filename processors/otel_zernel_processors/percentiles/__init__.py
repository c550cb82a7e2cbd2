"""Percentiles of gauges, sums and histograms, computed with HDR histograms."""

from otel_zernel_processors.percentiles.processor import PercentilesProcessor as PercentilesProcessor
