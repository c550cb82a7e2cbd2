"""Series of a page: the state behind the samples of one set of labels, with a class for each type of point."""

import math
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, ClassVar

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    NumberDataPoint,
    SummaryDataPoint,
)

from otel_zernel_libraries.histograms.restarts import begins_again
from otel_zernel_libraries.prometheus.histograms import (
    Bounds,
    BucketLayout,
    ExponentialBuckets,
    SteadyTotals,
    ascending,
    bounds_of,
)
from otel_zernel_libraries.prometheus.labels import sample_prefix


def exemplar_value(exemplar: Exemplar) -> float:
    """An exemplar's value, from whichever of its two fields is set."""
    return exemplar.as_double or exemplar.as_int


def copied(exemplar: Exemplar) -> Exemplar:
    """A copy. The original would keep its whole batch in memory."""
    copy = Exemplar()
    copy.CopyFrom(exemplar)
    return copy


Sample = tuple[str, float, Exemplar | None]
"""The prefix of a line, its value, and its exemplar."""

SeriesByKey = dict[bytes, "ExposedSeries"]
"""The series of one metric stream, by the encoded attributes of their points."""


class MalformedPoint(Exception):
    """The point's values are impossible. The series is unchanged."""


class ExposedSeries:
    """One set of labels of one metric family."""

    __slots__ = (
        *("earliest", "encoded", "identity", "keys", "labels"),
        *("late_since", "name", "siblings", "time", "updated"),
    )

    suffixes: ClassVar[tuple[str, ...]] = ("",)
    """The suffixes of the names of its samples."""
    own_label: ClassVar[str | None] = None
    """The label that its samples have besides the labels of the attributes."""

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey, layout: BucketLayout) -> None:
        """`layout` has the bounds of the family's histograms."""
        self.name = name
        """The name of its family."""
        self.labels = labels
        self.identity = identity
        """The encoded attributes, sorted."""
        self.siblings = siblings
        """All series of its metric stream."""
        self.keys: list[bytes] = []
        """Its own keys in `siblings`."""
        self.time = 0
        """The timestamp of the newest point, in ns since 1970."""
        self.earliest = 0
        """The lowest timestamp that the next point may have, in ns since 1970."""
        self.updated = -math.inf
        """The time of the last update, in s of the page's clock."""
        self.late_since = -math.inf
        """The time of the first late point after the last update, in s of the page's clock."""
        self.encoded: bytes | None = None
        """The part of its message in the protobuf format that does not change. None until a scraper wants it."""

    def is_set_back(self, now: float, patience: float) -> bool:
        """Whether all points have been late for `patience` s. Called for every late point."""
        if self.late_since <= self.updated:
            self.late_since = now
        return now - self.late_since >= patience

    def update(self, point: Any, delta: bool) -> None:
        """Replaces the value by the point's value, or adds a delta to it. Raises `MalformedPoint`."""
        raise NotImplementedError

    @property
    def has_exemplars(self) -> bool:
        """Whether at least one sample has an exemplar."""
        raise NotImplementedError

    def samples(self, *, openmetrics: bool) -> Iterator[Sample]:
        """Its lines, in OpenMetrics or in the Prometheus text format."""
        raise NotImplementedError


class NumberSeries(ExposedSeries):
    """A gauge, or a sum that is not monotonic."""

    __slots__ = ("exemplar", "prefix", "value")
    prefix: str
    """Its line up to the value."""

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey, layout: BucketLayout) -> None:
        super().__init__(name, labels, identity, siblings, layout)
        self.value: float = 0
        self.exemplar: Exemplar | None = None

    def __getattr__(self, name: str) -> Any:
        """Makes `prefix` at its first use: scrapers of the protobuf format need no text, and it takes much memory."""
        if name != "prefix":
            raise AttributeError(name)
        self.prefix = prefix = sample_prefix(self.name, self.labels)
        return prefix

    def update(self, point: NumberDataPoint, delta: bool) -> None:
        value = point.as_double or point.as_int  # an unset field reads as 0
        self.value = self.value + value if delta else value

    @property
    def has_exemplars(self) -> bool:
        return self.exemplar is not None

    def samples(self, *, openmetrics: bool) -> Iterator[Sample]:
        yield self.prefix, self.value, self.exemplar


class CounterSeries(NumberSeries):
    """A monotonic sum."""

    __slots__ = ("start",)

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey, layout: BucketLayout) -> None:
        super().__init__(name, labels, identity, siblings, layout)
        self.start = 0
        """The time since which it counts, in ns since 1970; 0 if it is unknown."""

    def update(self, point: NumberDataPoint, delta: bool) -> None:
        value = point.as_double or point.as_int
        if not value >= 0:
            raise MalformedPoint
        start = point.start_time_unix_nano
        if start != self.start and not (delta and self.start):
            self.start = start
            self.encoded = None
        self.value = self.value + value if delta else value
        if point.exemplars:
            self.exemplar = copied(max(point.exemplars, key=exemplar_value))


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
        values = {quantile_value.quantile: quantile_value.value for quantile_value in point.quantile_values}
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


_SCALES = range(-10, 21)
"""The scales of exponential histograms: the limits of the OpenTelemetry SDKs."""


class HistogramSeries(ExposedSeries):
    """Classic buckets at bounds that are those of the whole family."""

    __slots__ = ("bounds", "exemplars", "heads", "layout", "start", "total")
    suffixes = ("", "_bucket", "_count", "_sum")
    own_label = "le"

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey, layout: BucketLayout) -> None:
        super().__init__(name, labels, identity, siblings, layout)
        self.layout = layout
        self.bounds = layout.grid
        self.exemplars: dict[int, Exemplar] = {}
        """The exemplar with the greatest value of each bucket, by the bucket's index."""
        self.total: float | None = None
        """The sum; None if a point has none."""
        self.start = 0
        """The time since which it counts, in ns since 1970; 0 if it is unknown."""
        self.heads: tuple[str, str, str] | None = None
        """The prefix of a bucket up to the bound, and the prefixes of count and sum; None until they are needed."""

    @property
    def has_exemplars(self) -> bool:
        return bool(self.exemplars)

    @property
    def has_negative_values(self) -> bool:
        """Whether a value may be negative, so that the sum may decrease."""
        raise NotImplementedError

    def totals(self) -> list[int]:
        """The cumulative counts at `bounds`, shape (n + 1,). The last one is the number of values."""
        raise NotImplementedError

    @property
    def shown_total(self) -> float | None:
        """The sum, if it cannot decrease: Prometheus would read that as a restart."""
        increases = self.total is not None and self.total >= 0 and not self.has_negative_values
        return self.total if increases else None

    def has_count(self, *, openmetrics: bool) -> bool:
        """Whether its lines have a count. OpenMetrics 1.0 ("Histogram") has count and sum together, or neither."""
        return not openmetrics or self.shown_total is not None

    def lines(self, *, openmetrics: bool) -> list[str]:
        """Its lines, without timestamps and exemplars."""
        totals = self.totals()
        bucket, count, sum_ = self._line_heads()
        lines = [f"{bucket}{tail}{total}\n" for tail, total in zip(self.bounds.tails, totals, strict=True)]
        if self.has_count(openmetrics=openmetrics):
            lines.append(f"{count}{totals[-1]}\n")
        if (total := self.shown_total) is not None:
            lines.append(f"{sum_}{total!r}\n" if math.isfinite(total) else f"{sum_}+Inf\n")
        return lines

    def samples(self, *, openmetrics: bool) -> Iterator[Sample]:
        totals = self.totals()
        bucket, count, sum_ = self._line_heads()
        for index, (tail, total) in enumerate(zip(self.bounds.tails, totals, strict=True)):
            yield bucket + tail, total, self.exemplars.get(index)
        if self.has_count(openmetrics=openmetrics):
            yield count, totals[-1], None
        if self.shown_total is not None:
            yield sum_, self.shown_total, None

    def _line_heads(self) -> tuple[str, str, str]:
        if self.heads is None:
            bucket = sample_prefix(self.name + "_bucket", self.labels, 'le="').removesuffix("} ")
            count, sum_ = (sample_prefix(self.name + suffix, self.labels) for suffix in ("_count", "_sum"))
            self.heads = bucket, count, sum_
        return self.heads

    def _take_start(self, point: HistogramDataPoint | ExponentialHistogramDataPoint, delta: bool) -> None:
        if not (delta and self.start):
            self.start = point.start_time_unix_nano

    def _add_exemplars(self, exemplars: Iterable[Exemplar]) -> None:
        """Stores for each bucket the exemplar with the greatest value."""
        for exemplar in sorted(exemplars, key=exemplar_value):
            self.exemplars[self.bounds.position(exemplar_value(exemplar))] = copied(exemplar)


class ExplicitHistogramSeries(HistogramSeries):
    """A histogram whose sender chose the bounds.

    Some senders choose other bounds for every point. Such a histogram is shown on the grid of its family, as is every
    other series of the family from then on.
    """

    __slots__ = ("counts", "lowest_is_negative")

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey, layout: BucketLayout) -> None:
        super().__init__(name, labels, identity, siblings, layout)
        self.counts: list[int] = []
        """Of the buckets between `bounds`, shape (n + 1,); empty before the first point."""
        self.lowest_is_negative = False

    @property
    def has_negative_values(self) -> bool:
        return self.lowest_is_negative

    def update(self, point: HistogramDataPoint, delta: bool) -> None:
        bounds, counts = self._checked(point)
        if self.counts and bounds is not self.bounds and not self._is_restart(point, delta):
            self.layout.sender_moves = True
        if self.layout.sender_moves:
            self._settle()
            bounds, counts = self.layout.grid, self.layout.grid.moved(bounds, counts)
        total = point.sum if point.HasField("sum") else None
        has_negative_bound = bool(point.explicit_bounds) and point.explicit_bounds[0] < 0
        self.lowest_is_negative = has_negative_bound or (delta and self.lowest_is_negative)
        if delta and self.counts:
            counts = [old + new for old, new in zip(self.counts, counts, strict=True)]
            total = _added(self.total, total)
        if bounds is not self.bounds:
            self.bounds = bounds
            self.exemplars = {}
        self.counts = counts
        self.total = total
        self._take_start(point, delta)
        self._add_exemplars(point.exemplars)

    def totals(self) -> list[int]:
        if self.layout.sender_moves:
            self._settle()
        return list(accumulate(self.counts))

    def _checked(self, point: HistogramDataPoint) -> tuple[Bounds, list[int]]:
        """The bounds and the counts of a point. Raises `MalformedPoint`."""
        values = tuple(point.explicit_bounds)
        counts = list(point.bucket_counts) or [point.count]
        if values != self.bounds.values and not ascending(values):
            raise MalformedPoint
        if len(counts) != len(values) + 1:
            raise MalformedPoint
        return self.bounds if values == self.bounds.values else bounds_of(values), counts

    def _is_restart(self, point: HistogramDataPoint, delta: bool) -> bool:
        """Whether the sender has restarted, and may therefore have chosen other bounds."""
        restarts = begins_again(point.start_time_unix_nano, self.start, self.time)
        return not delta and (restarts or point.count < sum(self.counts))

    def _settle(self) -> None:
        """Moves the counts and the exemplars to the grid of the family."""
        grid = self.layout.grid
        if self.bounds is not grid:
            self.counts = grid.moved(self.bounds, self.counts)
            self.bounds = grid
            exemplars, self.exemplars = self.exemplars, {}
            self._add_exemplars(exemplars.values())


class ExponentialHistogramSeries(HistogramSeries):
    """An exponential histogram, shown on the grid of its family."""

    __slots__ = ("buckets", "steady")

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey, layout: BucketLayout) -> None:
        super().__init__(name, labels, identity, siblings, layout)
        self.buckets: ExponentialBuckets | None = None
        self.steady = SteadyTotals()

    @property
    def has_negative_values(self) -> bool:
        return self.buckets is not None and bool(self.buckets.negative)

    def update(self, point: ExponentialHistogramDataPoint, delta: bool) -> None:
        if point.scale not in _SCALES or not 0 <= point.zero_threshold < math.inf:
            raise MalformedPoint
        buckets, before = ExponentialBuckets.of(point), self.buckets
        total = point.sum if point.HasField("sum") else None
        if delta and before:
            buckets, total = before + buckets, _added(self.total, total)
        if before and buckets.scale < before.scale:
            self.totals()  # the finer counts are kept
        self.buckets = buckets
        self.total = total
        self._take_start(point, delta)
        self._add_exemplars(point.exemplars)

    def totals(self) -> list[int]:
        totals = self.bounds.totals(self.buckets) if self.buckets else [0] * (len(self.bounds.values) + 1)
        return self.steady.of(self.bounds, totals, self.start, self.time)


def _added(left: float | None, right: float | None) -> float | None:
    return left + right if left is not None and right is not None else None
