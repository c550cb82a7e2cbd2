"""Exponential histograms with fixed bounds, for a server without native histograms, such as Prometheus 3.5."""

import math
from itertools import pairwise
from threading import Lock
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
from otel_zernel_libraries.histograms.temporality.conversion import CUMULATIVE
from otel_zernel_libraries.histograms.temporality.memory import StreamIdentity
from otel_zernel_libraries.prometheus.histograms import Bounds, ExponentialBuckets, SteadyTotals, default_bounds

_SCALES: Final = range(-10, 21)
"""The scales of the OpenTelemetry SDKs. Others may take endless work."""


class ClassicHistograms:
    """Gives exponential histograms fixed bounds. The counts of a series never decrease while its sender goes on."""

    def __init__(self, max_series: int) -> None:
        """Beyond `max_series`, all series are forgotten: a count may then decrease once."""
        self._max_series = max_series
        self._steady: dict[bytes, SteadyTotals] = {}
        self._turn = Lock()

    async def converted(self, batch: Batch) -> Batch:
        """The batch with fixed bounds; the same batch if it has no exponential histogram."""
        copy = batch.copy()
        return copy if await run_in_thread(lambda: self._convert_all(copy.edit_metrics())) else batch

    def _convert_all(self, message: MetricsData) -> bool:
        """Returns whether there was something to convert."""
        is_converted = False
        for resource in message.resource_metrics:
            encoded = resource.resource.SerializeToString()
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.HasField("exponential_histogram"):
                        is_converted = True
                        self._convert(metric, encoded, scope.scope.SerializeToString())
        return is_converted

    def _convert(self, metric: Metric, resource: bytes, scope: bytes) -> None:
        former = ExponentialHistogram()
        former.CopyFrom(metric.exponential_histogram)
        metric.histogram.aggregation_temporality = former.aggregation_temporality
        bounds = default_bounds(metric.unit)
        stream = StreamIdentity(resource, scope, metric, "exponential_histogram", monotonic=True)
        is_cumulative = former.aggregation_temporality == CUMULATIVE
        with self._turn:
            for point in former.data_points:
                series = stream.of(point.attributes) if is_cumulative else b""
                metric.histogram.data_points.append(self._point(point, bounds, series))

    def _point(self, point: ExponentialHistogramDataPoint, bounds: Bounds, series: bytes) -> HistogramDataPoint:
        """The point without buckets if it marks the end of a series, or if its fields contradict each other.

        `series` identifies a cumulative series; else it is empty.
        """
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
        if has_no_value(point):
            self._steady.pop(series, None)
        elif point.scale in _SCALES and 0 <= point.zero_threshold < math.inf:
            totals = bounds.totals(ExponentialBuckets.of(point))
            if totals[-1] == point.count:
                if series:
                    totals = self._of(series).of(bounds, totals, point.start_time_unix_nano, point.time_unix_nano)
                classic.explicit_bounds.extend(bounds.values)
                classic.bucket_counts.extend(after - before for before, after in pairwise((0, *totals)))
        return classic

    def _of(self, series: bytes) -> SteadyTotals:
        if series not in self._steady and len(self._steady) >= self._max_series:
            self._steady.clear()
        return self._steady.setdefault(series, SteadyTotals())
