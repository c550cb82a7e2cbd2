"""Series of a page: the state behind the samples of one set of labels, with a class for each type of point.

A series keeps the prefixes of its lines (`name{labels} `) as text that is made once, and the values that follow them.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, ClassVar

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    NumberDataPoint,
    SummaryDataPoint,
)

from otel_zernel.exposition.exponential import ExponentialBuckets
from otel_zernel.exposition.labels import number_text, sample_prefix

Sample = tuple[str, float, Exemplar | None]
"""The prefix of a line, its value, and its exemplar."""

SeriesByKey = dict[bytes, "ExposedSeries"]
"""The series of one metric stream, by the encoded attributes of their points."""

_SCALES = range(-10, 21)
"""The scales of exponential histograms: the limits of the OpenTelemetry SDKs."""


class MalformedPoint(Exception):
    """The point's values are impossible. The series is unchanged."""


class ExposedSeries:
    """One set of labels of one metric family."""

    __slots__ = ("earliest", "identity", "keys", "labels", "late_since", "name", "siblings", "time", "updated")

    suffixes: ClassVar[tuple[str, ...]] = ("",)
    """The suffixes of the names of its samples."""
    own_label: ClassVar[str | None] = None
    """The label that its samples have besides the labels of the attributes."""

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey) -> None:
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

    def samples(self) -> Iterator[Sample]:
        """Its lines."""
        raise NotImplementedError


class NumberSeries(ExposedSeries):
    """A gauge, or a sum that is not monotonic."""

    __slots__ = ("exemplar", "prefix", "value")

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey) -> None:
        super().__init__(name, labels, identity, siblings)
        self.prefix = sample_prefix(name, labels)
        self.value: float = 0
        self.exemplar: Exemplar | None = None

    def update(self, point: NumberDataPoint, delta: bool) -> None:
        value = point.as_double or point.as_int  # an unset field reads as 0
        self.value = self.value + value if delta else value

    @property
    def has_exemplars(self) -> bool:
        return self.exemplar is not None

    def samples(self) -> Iterator[Sample]:
        yield self.prefix, self.value, self.exemplar


class CounterSeries(NumberSeries):
    """A monotonic sum."""

    __slots__ = ()

    def update(self, point: NumberDataPoint, delta: bool) -> None:
        value = point.as_double or point.as_int
        if not value >= 0:
            raise MalformedPoint
        self.value = self.value + value if delta else value
        if point.exemplars:
            self.exemplar = _copied(max(point.exemplars, key=exemplar_value))


class MultiSampleSeries(ExposedSeries):
    """A series of several samples. Count and sum are the last ones, so that they can be omitted."""

    __slots__ = ("exemplars", "prefixes", "shape", "values")

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey) -> None:
        super().__init__(name, labels, identity, siblings)
        self.shape: list[float] | None = None
        """The bounds or quantiles that `prefixes` were made from."""
        self.prefixes: list[str] = []
        self.values: list[float] = []
        self.exemplars: dict[int, Exemplar] = {}
        """By index in `values`."""

    @property
    def has_exemplars(self) -> bool:
        return bool(self.exemplars)

    def samples(self) -> Iterator[Sample]:
        for index, (prefix, value) in enumerate(zip(self.prefixes, self.values, strict=False)):
            yield prefix, value, self.exemplars.get(index)

    def _set_values(self, shape: list[float], values: list[float]) -> None:
        """Sets a value for each line of the shape. The values of count and sum may follow."""
        if shape != self.shape:
            self.shape = shape
            self.prefixes = [*self._shape_prefixes(shape), self._prefix("_count"), self._prefix("_sum")]
            self.exemplars = {}
        self.values = values

    def _shape_prefixes(self, shape: list[float]) -> list[str]:
        """The prefixes of the lines before count and sum."""
        raise NotImplementedError

    def _prefix(self, suffix: str, extra_label: str = "") -> str:
        return sample_prefix(self.name + suffix, self.labels, extra_label)


class SummarySeries(MultiSampleSeries):
    """The quantiles of the last point. Quantiles 0 and 1 are the minimum and the maximum."""

    __slots__ = ()
    suffixes = ("", "_count", "_sum")
    own_label = "quantile"

    def update(self, point: SummaryDataPoint, delta: bool) -> None:
        quantiles = {one.quantile: one.value for one in point.quantile_values}
        if not all(0 <= quantile <= 1 and not value < 0 for quantile, value in quantiles.items()):
            raise MalformedPoint
        shape = sorted(quantiles)
        values = [*(quantiles[quantile] for quantile in shape), point.count]
        self._set_values(shape, [*values, point.sum] if point.sum >= 0 else values)

    def _shape_prefixes(self, shape: list[float]) -> list[str]:
        return [self._prefix("", f'quantile="{repr(quantile).removesuffix(".0")}"') for quantile in shape]


class HistogramSeries(MultiSampleSeries):
    """Classic buckets: each bucket counts all values up to its bound."""

    __slots__ = ()
    suffixes = ("", "_bucket", "_count", "_sum")
    own_label = "le"

    def _set_buckets(self, bounds: list[float], totals: list[int], total: float | None) -> None:
        """Sets the buckets. `total`, the sum, is shown together with the count, or neither (OpenMetrics 1.0,
        "Histogram").

        With negative values, the sum may decrease. Prometheus would read that as a restart, so the sum is omitted.
        """
        increases = total is not None and total >= 0 and not (bounds and bounds[0] < 0)
        self._set_values(bounds, [*totals, totals[-1], total] if total is not None and increases else [*totals])

    def _add_exemplars(self, exemplars: Sequence[Exemplar]) -> None:
        """Stores for each bucket the exemplar with the greatest value."""
        for exemplar in sorted(exemplars, key=exemplar_value):
            self.exemplars[bisect_left(self.shape or [], exemplar_value(exemplar))] = _copied(exemplar)

    def _shape_prefixes(self, shape: list[float]) -> list[str]:
        return [self._prefix("_bucket", f'le="{number_text(bound)}"') for bound in (*shape, math.inf)]


class ExplicitHistogramSeries(HistogramSeries):
    """A histogram whose sender chose the bounds."""

    __slots__ = ("counts", "total")

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey) -> None:
        super().__init__(name, labels, identity, siblings)
        self.counts: list[int] = []
        self.total: float | None = None

    def update(self, point: HistogramDataPoint, delta: bool) -> None:
        bounds = list(point.explicit_bounds)
        counts = list(point.bucket_counts) or [point.count]
        if bounds != self.shape:
            _check_bounds(bounds)
        if len(counts) != len(bounds) + 1:
            raise MalformedPoint
        total = point.sum if point.HasField("sum") else None
        if delta and bounds == self.shape:  # with other bounds, the series restarts from this delta
            counts = [old + new for old, new in zip(self.counts, counts, strict=True)]
            total = _added(self.total, total)
        self.counts, self.total = counts, total
        self._set_buckets(bounds, list(accumulate(counts)), total)
        self._add_exemplars(point.exemplars)


class ExponentialHistogramSeries(HistogramSeries):
    """An exponential histogram, converted to a limited number of classic buckets."""

    __slots__ = ("buckets", "total")

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey) -> None:
        super().__init__(name, labels, identity, siblings)
        self.buckets: ExponentialBuckets | None = None
        self.total: float | None = None

    def update(self, point: ExponentialHistogramDataPoint, delta: bool) -> None:
        if point.scale not in _SCALES or not 0 <= point.zero_threshold < math.inf:
            raise MalformedPoint
        buckets = ExponentialBuckets.of(point)
        total = point.sum if point.HasField("sum") else None
        if delta and self.buckets:
            buckets, total = self.buckets + buckets, _added(self.total, total)
        self.buckets, self.total = buckets, total
        bounds, totals = buckets.classic()
        previous = list(self.exemplars.values())  # new bounds are no restart, so the exemplars stay valid
        self._set_buckets(bounds, totals, total)
        if not self.exemplars:
            self._add_exemplars(previous)
        self._add_exemplars(point.exemplars)


def exemplar_value(exemplar: Exemplar) -> float:
    """An exemplar's value, from whichever of its two fields is set."""
    return exemplar.as_double or exemplar.as_int


def _copied(exemplar: Exemplar) -> Exemplar:
    """A copy. The original would keep its whole batch in memory."""
    copy = Exemplar()
    copy.CopyFrom(exemplar)
    return copy


def _check_bounds(bounds: list[float]) -> None:
    ascending = all(low < high for low, high in pairwise(bounds))
    if not ascending or not all(map(math.isfinite, bounds)):
        raise MalformedPoint


def _added(left: float | None, right: float | None) -> float | None:
    return left + right if left is not None and right is not None else None
