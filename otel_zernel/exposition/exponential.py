"""Exponential histograms: adding them up, and showing them as classic buckets.

A bucket of index i covers (base^i, base^(i+1)] with base = 2^(2^-scale); halving the scale's resolution joins each pair
of buckets (OpenTelemetry metrics data model, "ExponentialHistogram").
"""

import math
from dataclasses import dataclass, field
from itertools import accumulate

from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint

Counts = dict[int, int]
"""The buckets' counts by index; without the empty ones."""

_KEPT = 160
"""Buckets kept on each side of zero: the OpenTelemetry SDKs' default."""
SHOWN = 32
"""Buckets shown on each side of zero. Finer ones are joined, for each is a series of Prometheus's."""


@dataclass(slots=True)
class Exponential:
    """The buckets of a point, or the sum of several."""

    scale: int = 20
    zero_threshold: float = 0.0
    zero_count: int = 0
    positive: Counts = field(default_factory=dict)
    negative: Counts = field(default_factory=dict)

    @classmethod
    def of(cls, point: ExponentialHistogramDataPoint) -> "Exponential":
        sides = [
            {side.offset + i: count for i, count in enumerate(side.bucket_counts) if count}
            for side in (point.positive, point.negative)
        ]
        return cls(point.scale, point.zero_threshold, point.zero_count, *sides)

    def __add__(self, other: "Exponential") -> "Exponential":
        scale = min(self.scale, other.scale)
        mine, theirs = self._at(scale), other._at(scale)
        total = Exponential(
            scale,
            max(self.zero_threshold, other.zero_threshold),
            self.zero_count + other.zero_count,
            _added(mine.positive, theirs.positive),
            _added(mine.negative, theirs.negative),
        )
        return total.narrowed(_KEPT)

    def narrowed(self, buckets: int) -> "Exponential":
        """The same at the finest scale at which neither side spans more than so many buckets."""
        scale = self.scale
        while any(_span(side, self.scale - scale) > buckets for side in (self.positive, self.negative)):
            scale -= 1
        return self._at(scale)

    def _at(self, scale: int) -> "Exponential":
        shift = self.scale - scale
        if not shift:
            return self
        sides = (_joined(self.positive, shift), _joined(self.negative, shift))
        return Exponential(scale, self.zero_threshold, self.zero_count, *sides)

    def classic(self) -> tuple[list[float], list[int]]:
        """Ascending finite bounds, shape (n,), and the counts at or below them with the total behind, shape (n + 1,).

        The edges of the outermost buckets are among the bounds, so that no quantile is interpolated from zero.
        """
        shown = self.narrowed(SHOWN)
        negative, positive, scale = shown.negative, shown.positive, shown.scale
        edges = [(0.0 - _bound(index, scale), negative.get(index, 0)) for index in reversed(_range(negative, above=1))]
        lowest = _bound(min(positive), scale) if positive else self.zero_threshold
        edges.append((min(self.zero_threshold, lowest), self.zero_count))
        edges.append((lowest, 0))
        edges += [(_bound(index + 1, scale), positive.get(index, 0)) for index in _range(positive)]
        return _cumulated(edges)


def _bound(index: int, scale: int) -> float:
    exponent = index * 2.0**-scale
    return float(2.0**exponent) if exponent < 1024 else math.inf


def _range(side: Counts, above: int = 0) -> range:
    return range(min(side), max(side) + 1 + above) if side else range(0)


def _span(side: Counts, shift: int) -> int:
    return (max(side) >> shift) - (min(side) >> shift) + 1 if side else 0


def _joined(side: Counts, shift: int) -> Counts:
    counts: Counts = {}
    for index, count in side.items():
        counts[index >> shift] = counts.get(index >> shift, 0) + count
    return counts


def _added(left: Counts, right: Counts) -> Counts:
    return {index: left.get(index, 0) + right.get(index, 0) for index in left.keys() | right.keys()}


def _cumulated(edges: list[tuple[float, int]]) -> tuple[list[float], list[int]]:
    counts: dict[float, int] = {}
    for bound, count in edges:  # bounds too small or too large for a float coincide
        counts[bound] = counts.get(bound, 0) + count
    totals = list(accumulate(counts.values()))
    finite = [(bound, total) for bound, total in zip(counts, totals, strict=True) if math.isfinite(bound)]
    return [bound for bound, _ in finite], [*(total for _, total in finite), totals[-1]]
