"""Series of a page: the state behind the samples of one set of labels, with a class for each type of point."""

from otel_zernel_libraries.prometheus.series.exemplars import exemplar_value
from otel_zernel_libraries.prometheus.series.exposed import ExposedSeries, MalformedPoint, Sample, SeriesByKey
from otel_zernel_libraries.prometheus.series.histograms import (
    ExplicitHistogramSeries,
    ExponentialHistogramSeries,
    HistogramSeries,
)
from otel_zernel_libraries.prometheus.series.numbers import CounterSeries, NumberSeries
from otel_zernel_libraries.prometheus.series.summaries import SummarySeries

__all__ = [
    "CounterSeries",
    "ExplicitHistogramSeries",
    "ExponentialHistogramSeries",
    "ExposedSeries",
    "HistogramSeries",
    "MalformedPoint",
    "NumberSeries",
    "Sample",
    "SeriesByKey",
    "SummarySeries",
    "exemplar_value",
]
