"""Histograms and summaries as series: classic buckets, native histograms, quantiles."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    SummaryDataPoint,
)

from otel_zernel_exporters.prometheusremotewrite.protocol.series import (
    STALE,
    Exemplars,
    FamilyMetadata,
    SeriesTable,
    Writes,
    WrittenHistogram,
    WrittenSample,
    WrittenSeries,
    is_stale,
    recorded,
    sorted_pairs,
)
from otel_zernel_libraries.prometheus.histograms import (
    Bounds,
    ExponentialBuckets,
    SteadyTotals,
    ascending,
    bound_text,
    bounds_of,
    native_buckets,
)
from otel_zernel_libraries.prometheus.histograms.native import Side, custom_side
from otel_zernel_libraries.prometheus.series import MalformedPoint

CUSTOM_BUCKETS = -53
"""The schema of native histograms with custom bounds."""
_SCALES = range(-10, 21)
"""The scales of exponential histograms: the limits of the OpenTelemetry SDKs."""
_NO_SIDE = Side([], [])


class PartedSeries:
    """The series of a metric that has a count, a sum, and a series for each bound or quantile.

    A series whose bound or quantile is no longer reported ends with a staleness marker.
    """

    def __init__(
        self, name: str, labels: Mapping[str, str], metadata: FamilyMetadata, table: SeriesTable, part: str
    ) -> None:
        """`part` is `le` or `quantile`."""
        self._name = name
        self._labels = labels
        self._metadata = metadata
        self._table = table
        self._part = part
        self._part_name = f"{name}_bucket" if part == "le" else name
        self._count = self._find(f"{name}_count")
        self._sum = self._find(f"{name}_sum")
        self._parts: list[WrittenSeries] = []
        self._values: object = None
        """The bounds or quantiles of `_parts`."""
        self._time_ms = 0
        self.steady = SteadyTotals()
        """The counts of an exponential histogram."""

    def write(
        self,
        writes: Writes,
        sample: tuple[int, int, int],
        values: Bounds | tuple[float, ...],
        shown: Sequence[float],
        count: int,
        total: float | None,
        exemplars: Mapping[int, Exemplars],
    ) -> None:
        """Adds the samples of a point.

        `sample` is its time, its start and its number. `shown` are the values of the parts, and `exemplars` theirs.
        """
        time_ms, start_ms, number = sample
        if values is not self._values and values != self._values:
            self._replace_parts(writes, values, time_ms, number)
        self._time_ms = max(self._time_ms, time_ms)
        for index, (series, value) in enumerate(zip(self._parts, shown, strict=True)):
            writes.add(series, (time_ms, recorded(float(value)), start_ms, number, exemplars.get(index, ())))
        writes.add(self._count, (time_ms, float(count), start_ms, number, ()))
        if total is not None:
            writes.add(self._sum, (time_ms, recorded(total), start_ms, number, ()))

    def end(self, writes: Writes, sample: tuple[int, int, int]) -> None:
        """Ends all series at the time of a staleness point."""
        time_ms, _, number = sample
        for series in (*self._parts, self._count, self._sum):
            writes.add(series, (time_ms, STALE, 0, number, ()))

    def _replace_parts(self, writes: Writes, values: Bounds | tuple[float, ...], time_ms: int, number: int) -> None:
        if isinstance(values, Bounds):
            texts = [bound_text(bound) for bound in (*values.values, math.inf)]
        else:
            texts = [repr(quantile).removesuffix(".0") for quantile in values]
        former, self._values = self._parts, values
        self._parts = [self._find(self._part_name, text) for text in texts]
        if time_ms > self._time_ms:
            kept = set(map(id, self._parts))
            for series in former:
                if id(series) not in kept:
                    writes.add(series, (time_ms, STALE, 0, number, ()))

    def _find(self, name: str, value: str = "") -> WrittenSeries:
        return self._table.find(sorted_pairs(name, self._labels, self._part, value), self._metadata)


def write_explicit(
    series: PartedSeries,
    writes: Writes,
    point: HistogramDataPoint,
    bounds: Bounds,
    counts: list[int],
    sample: tuple[int, int, int],
    exemplars: Exemplars,
) -> None:
    """Adds a histogram with explicit bounds. `counts` has shape (n + 1,)."""
    total = point.sum if point.HasField("sum") else None
    totals = list(accumulate(counts))
    series.write(writes, sample, bounds, totals, totals[-1], total, _by_bucket(exemplars, bounds))


def write_native_as_classic(series: WrittenSeries, writes: Writes, written: WrittenSample) -> None:
    """Adds the classic buckets of a native histogram, or their staleness markers."""
    classic: PartedSeries = series.classic
    time_ms, value, start_ms, number, exemplars = written
    if isinstance(value, float):
        raise TypeError("a native histogram has no plain value")
    if is_stale(value.total):
        classic.end(writes, (time_ms, start_ms, number))
        return
    totals = classic.steady.of(value.bounds, value.totals, start_ms, time_ms)
    total = None if math.isnan(value.total) else value.total
    shown = _by_bucket(exemplars, value.bounds)
    classic.write(writes, (time_ms, start_ms, number), value.bounds, totals, totals[-1], total, shown)


def explicit_buckets(point: HistogramDataPoint) -> tuple[Bounds, list[int]]:
    """The bounds and the counts, shape (n + 1,). Raises `MalformedPoint`."""
    values = tuple(point.explicit_bounds)
    counts = list(point.bucket_counts) or [point.count]
    if len(counts) != len(values) + 1 or not ascending(values):
        raise MalformedPoint
    return bounds_of(values), counts


def _by_bucket(exemplars: Exemplars, bounds: Bounds) -> Mapping[int, Exemplars]:
    """The exemplars by the index of their classic bucket."""
    exemplars_: dict[int, Exemplars] = {}
    for exemplar in exemplars:
        index = bounds.position(exemplar.value)
        exemplars_[index] = (*exemplars_.get(index, ()), exemplar)
    return exemplars_


def custom_histogram(point: HistogramDataPoint) -> WrittenHistogram:
    """A histogram with explicit bounds as a native one of schema -53. Raises `MalformedPoint`."""
    bounds, counts = explicit_buckets(point)
    total = recorded(point.sum) if point.HasField("sum") else math.nan
    return WrittenHistogram(sum(counts), total, CUSTOM_BUCKETS, 0.0, 0, _NO_SIDE, custom_side(counts), bounds, counts)


def exponential_histogram(point: ExponentialHistogramDataPoint, grid: Bounds) -> WrittenHistogram:
    """The native histogram of a point. `grid` has its classic bounds. Raises `MalformedPoint`."""
    if point.scale not in _SCALES or not 0 <= point.zero_threshold < math.inf:
        raise MalformedPoint
    buckets = ExponentialBuckets.of(point)
    total = recorded(point.sum) if point.HasField("sum") else math.nan
    native = native_buckets(buckets)
    if native is None:
        return WrittenHistogram(buckets.count, total, None, 0.0, 0, _NO_SIDE, _NO_SIDE, grid, buckets)
    return WrittenHistogram(
        *(buckets.count, total, native.schema, native.zero_threshold, native.zero_count),
        *(native.negative, native.positive, grid, buckets),
    )


def stale_histogram(grid: Bounds) -> WrittenHistogram:
    """The value that ends a series of native histograms."""
    return WrittenHistogram(0, STALE, 0, 0.0, 0, _NO_SIDE, _NO_SIDE, grid, [])


def write_summary(series: PartedSeries, writes: Writes, point: SummaryDataPoint, sample: tuple[int, int, int]) -> None:
    """Adds a summary. Raises `MalformedPoint`."""
    values = {quantile_value.quantile: quantile_value.value for quantile_value in point.quantile_values}
    if not all(0 <= quantile <= 1 for quantile in values):
        raise MalformedPoint
    quantiles = tuple(sorted(values))
    shown = [values[quantile] for quantile in quantiles]
    series.write(writes, sample, quantiles, shown, point.count, point.sum, {})
