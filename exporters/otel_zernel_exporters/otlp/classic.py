"""Exponential histograms with fixed bounds, for a server without native histograms, such as Prometheus 3.5."""

import math
from itertools import pairwise
from typing import Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    MetricsData,
)

from otel_zernel.batch import Batch
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.prometheus.histograms import Bounds, ExponentialBuckets, default_bounds

_SCALES: Final = range(-10, 21)
"""The scales of the OpenTelemetry SDKs. Others may take endless work."""


async def with_fixed_bounds(batch: Batch) -> Batch:
    """The batch with fixed bounds in place of exponential histograms; the same batch if it has none."""
    copy = batch.copy()
    return copy if await run_in_thread(lambda: _convert_all(copy.edit_metrics())) else batch


def _convert_all(message: MetricsData) -> bool:
    """Returns whether there was something to convert."""
    exponential = [
        metric
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.HasField("exponential_histogram")
    ]
    for metric in exponential:
        _convert(metric)
    return bool(exponential)


def _convert(metric: Metric) -> None:
    former = ExponentialHistogram()
    former.CopyFrom(metric.exponential_histogram)
    metric.histogram.aggregation_temporality = former.aggregation_temporality
    bounds = default_bounds(metric.unit)
    metric.histogram.data_points.extend(_point(point, bounds) for point in former.data_points)


def _point(point: ExponentialHistogramDataPoint, bounds: Bounds) -> HistogramDataPoint:
    """The point without buckets if it marks the end of a series, or if its fields contradict each other."""
    classic = HistogramDataPoint(
        attributes=point.attributes,
        start_time_unix_nano=point.start_time_unix_nano,
        time_unix_nano=point.time_unix_nano,
        count=point.count,
        exemplars=point.exemplars,
        flags=point.flags,
    )
    for name in ("sum", "min", "max"):
        if point.HasField(name):
            setattr(classic, name, getattr(point, name))
    if not has_no_value(point) and point.scale in _SCALES and 0 <= point.zero_threshold < math.inf:
        totals = bounds.totals(ExponentialBuckets.of(point))
        if totals[-1] == point.count:
            classic.explicit_bounds.extend(bounds.values)
            classic.bucket_counts.extend(after - before for before, after in pairwise((0, *totals)))
    return classic
