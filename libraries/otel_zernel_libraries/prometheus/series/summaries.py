"""Summaries: quantiles with a count and a sum."""

from collections.abc import Iterator

from opentelemetry.proto.metrics.v1.metrics_pb2 import SummaryDataPoint

from otel_zernel_libraries.prometheus.histograms import BucketLayout
from otel_zernel_libraries.prometheus.labels import sample_prefix
from otel_zernel_libraries.prometheus.series.exposed import ExposedSeries, MalformedPoint, Sample, SeriesByKey


class SummarySeries(ExposedSeries):
    """The quantiles of the last point. Quantiles 0 and 1 are the minimum and the maximum."""

    __slots__ = ("count", "prefixes", "quantiles", "start", "total", "values")
    suffixes = ("", "_count", "_sum")
    own_label = "quantile"

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey, layout: BucketLayout) -> None:
        super().__init__(name, labels, identity, siblings, layout)
        self.quantiles: list[float] | None = None
        """Ascending."""
        self.values: list[float] = []
        """By the index of their quantiles."""
        self.count = 0
        self.total: float | None = None
        """The sum; None if it may decrease."""
        self.start = 0
        """The time since which it counts, in ns since 1970; 0 if it is unknown."""
        self.prefixes: list[str] = []
        """Of the quantiles, the count and the sum."""

    def update(self, point: SummaryDataPoint, delta: bool) -> None:
        values = {one.quantile: one.value for one in point.quantile_values}
        if not all(0 <= quantile <= 1 and not value < 0 for quantile, value in values.items()):
            raise MalformedPoint
        quantiles = sorted(values)
        if quantiles != self.quantiles:
            self.quantiles = quantiles
            self.prefixes = []
        self.values = [values[quantile] for quantile in quantiles]
        self.count, self.total = point.count, point.sum if point.sum >= 0 else None
        self.start = point.start_time_unix_nano

    @property
    def has_exemplars(self) -> bool:
        return False

    def samples(self, *, openmetrics: bool) -> Iterator[Sample]:
        if not self.prefixes:
            self.prefixes = self._line_prefixes()
        shown = [*self.values, self.count] if self.total is None else [*self.values, self.count, self.total]
        for prefix, value in zip(self.prefixes, shown, strict=False):
            yield prefix, value, None

    def _line_prefixes(self) -> list[str]:
        of_quantiles = [
            sample_prefix(self.name, self.labels, f'quantile="{repr(quantile).removesuffix(".0")}"')
            for quantile in self.quantiles or ()
        ]
        return [*of_quantiles, *(sample_prefix(self.name + suffix, self.labels) for suffix in ("_count", "_sum"))]
