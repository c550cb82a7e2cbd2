"""Series: the state of what one set of labels shows, a class for each kind of point.

A series holds its lines' beginnings (`name{labels} `) as text that is made once, and the values behind them.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    NumberDataPoint,
    SummaryDataPoint,
)

from otel_zernel.exposition.exponential import Exponential
from otel_zernel.exposition.labels import sample, spell

if TYPE_CHECKING:  # a stream knows its series
    from otel_zernel.exposition.stream import Stream

Sample = tuple[str, float, Exemplar | None]
"""A line's beginning, its value, and its exemplar."""

_SCALES = range(-10, 21)
"""Of exponential histograms: the OpenTelemetry SDKs' limits."""


class Malformed(Exception):
    """A point that says nothing sensible. It changed nothing."""


class Series:
    """One set of labels of one family. `absorb` takes its points, in order."""

    __slots__ = ("earliest", "identity", "keys", "labels", "seen", "stream", "time")

    suffixes: ClassVar[tuple[str, ...]] = ("",)
    """What its samples' names end in."""
    own_label: ClassVar[str | None] = None
    """The label it adds to those of the attributes."""

    def __init__(self, stream: "Stream", labels: str, identity: bytes) -> None:
        self.stream = stream
        self.labels = labels
        self.identity = identity
        """The attributes encoded, in an order of their own."""
        self.keys: list[bytes] = []
        """Its keys in `stream.known`."""
        self.time = 0
        """ns since 1970 of the newest point."""
        self.earliest = 0
        """The first time, in ns, that the next point may have."""
        self.seen = -math.inf
        """When a point last came, in s of the page's clock."""

    def absorb(self, point: Any, delta: bool) -> None:
        """Takes the point's value, or adds it if it is a delta. Raises `Malformed`."""
        raise NotImplementedError

    @property
    def has_exemplars(self) -> bool:
        """Whether some sample has one."""
        raise NotImplementedError

    def samples(self) -> Iterator[Sample]:
        """Its lines."""
        raise NotImplementedError


class Number(Series):
    """A gauge, or a sum that may fall."""

    __slots__ = ("exemplar", "prefix", "value")

    def __init__(self, stream: "Stream", labels: str, identity: bytes) -> None:
        super().__init__(stream, labels, identity)
        self.prefix = sample(stream.name, labels)
        self.value: float = 0
        self.exemplar: Exemplar | None = None

    def absorb(self, point: NumberDataPoint, delta: bool) -> None:
        value = point.as_double or point.as_int  # the one that is not set reads 0
        self.value = self.value + value if delta else value

    @property
    def has_exemplars(self) -> bool:
        return self.exemplar is not None

    def samples(self) -> Iterator[Sample]:
        yield self.prefix, self.value, self.exemplar


class Counter(Number):
    """A sum that only grows."""

    __slots__ = ()

    def absorb(self, point: NumberDataPoint, delta: bool) -> None:
        value = point.as_double or point.as_int
        if not value >= 0:
            raise Malformed
        self.value = self.value + value if delta else value
        if point.exemplars:
            self.exemplar = _copied(max(point.exemplars, key=exemplar_value))


class Distribution(Series):
    """What has several lines. Count and sum are the last of them, so that they can be missing."""

    __slots__ = ("exemplars", "prefixes", "shape", "values")

    def __init__(self, stream: "Stream", labels: str, identity: bytes) -> None:
        super().__init__(stream, labels, identity)
        self.shape: list[float] | None = None
        """Bounds or quantiles, of which `prefixes` are made."""
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

    def _show(self, shape: list[float], values: list[float]) -> None:
        """Sets what is shown: a value for each of the shape's lines, and for count and sum, if they are there."""
        if shape != self.shape:
            self.shape = shape
            self.prefixes = [*self._shaped(shape), self._line("_count"), self._line("_sum")]
            self.exemplars = {}
        self.values = values

    def _shaped(self, shape: list[float]) -> list[str]:
        """The beginnings of the lines in front of count and sum."""
        raise NotImplementedError

    def _line(self, suffix: str, extra: str = "") -> str:
        return sample(self.stream.name + suffix, self.labels, extra)


class Summary(Distribution):
    """Quantiles as they came; 0 and 1 are the least and the greatest value."""

    __slots__ = ()
    suffixes = ("", "_count", "_sum")
    own_label = "quantile"

    def absorb(self, point: SummaryDataPoint, delta: bool) -> None:
        quantiles = {one.quantile: one.value for one in point.quantile_values}
        if not all(0 <= quantile <= 1 and not value < 0 for quantile, value in quantiles.items()):
            raise Malformed
        shape = sorted(quantiles)
        shown = [*(quantiles[quantile] for quantile in shape), point.count]
        self._show(shape, [*shown, point.sum] if point.sum >= 0 else shown)

    def _shaped(self, shape: list[float]) -> list[str]:
        return [self._line("", f'quantile="{repr(quantile).removesuffix(".0")}"') for quantile in shape]


class Buckets(Distribution):
    """A histogram's lines: a bucket's counts all values up to its bound."""

    __slots__ = ()
    suffixes = ("", "_bucket", "_count", "_sum")
    own_label = "le"

    def _show_buckets(self, bounds: list[float], totals: list[int], total: float | None) -> None:
        """Shows `total`, the sum, with a count: both or none (OpenMetrics 1.0, "Histogram").

        A sum that may fall, because values may be negative, would look like a restart, and is left out.
        """
        grows = total is not None and total >= 0 and not (bounds and bounds[0] < 0)
        self._show(bounds, [*totals, totals[-1], total] if total is not None and grows else [*totals])

    def _keep(self, exemplars: Sequence[Exemplar]) -> None:
        """Keeps the greatest of each bucket."""
        for exemplar in sorted(exemplars, key=exemplar_value):
            self.exemplars[bisect_left(self.shape or [], exemplar_value(exemplar))] = _copied(exemplar)

    def _shaped(self, shape: list[float]) -> list[str]:
        return [self._line("_bucket", f'le="{spell(bound)}"') for bound in (*shape, math.inf)]


class Histogram(Buckets):
    """Buckets with bounds of the sender's."""

    __slots__ = ("counts", "total")

    def __init__(self, stream: "Stream", labels: str, identity: bytes) -> None:
        super().__init__(stream, labels, identity)
        self.counts: list[int] = []
        self.total: float | None = None

    def absorb(self, point: HistogramDataPoint, delta: bool) -> None:
        bounds = list(point.explicit_bounds)
        counts = list(point.bucket_counts) or [point.count]
        if bounds != self.shape:
            _check_bounds(bounds)
        if len(counts) != len(bounds) + 1:
            raise Malformed
        total = point.sum if point.HasField("sum") else None
        if delta and bounds == self.shape:  # with other bounds it starts anew, as after a restart
            counts = [old + new for old, new in zip(self.counts, counts, strict=True)]
            total = _added(self.total, total)
        self.counts, self.total = counts, total
        self._show_buckets(bounds, list(accumulate(counts)), total)
        self._keep(point.exemplars)


class Exponentials(Buckets):
    """Buckets of an exponential histogram, as many as a text format can bear."""

    __slots__ = ("buckets", "total")

    def __init__(self, stream: "Stream", labels: str, identity: bytes) -> None:
        super().__init__(stream, labels, identity)
        self.buckets: Exponential | None = None
        self.total: float | None = None

    def absorb(self, point: ExponentialHistogramDataPoint, delta: bool) -> None:
        if point.scale not in _SCALES or not 0 <= point.zero_threshold < math.inf:
            raise Malformed
        buckets = Exponential.of(point)
        total = point.sum if point.HasField("sum") else None
        if delta and self.buckets:
            buckets, total = self.buckets + buckets, _added(self.total, total)
        self.buckets, self.total = buckets, total
        bounds, totals = buckets.classic()
        kept = list(self.exemplars.values())  # other bounds are no restart here: they only fit new values
        self._show_buckets(bounds, totals, total)
        if not self.exemplars:
            self._keep(kept)
        self._keep(point.exemplars)


def exemplar_value(exemplar: Exemplar) -> float:
    """An exemplar's value, a float or an integer."""
    return exemplar.as_double or exemplar.as_int


def _copied(exemplar: Exemplar) -> Exemplar:
    """A copy, for a part of a batch keeps the whole batch in memory."""
    twin = Exemplar()
    twin.CopyFrom(exemplar)
    return twin


def _check_bounds(bounds: list[float]) -> None:
    ascending = all(low < high for low, high in pairwise(bounds))
    if not ascending or not all(map(math.isfinite, bounds)):
        raise Malformed


def _added(left: float | None, right: float | None) -> float | None:
    return left + right if left is not None and right is not None else None
