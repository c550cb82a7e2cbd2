"""Classic bounds, the text of their `le` labels, and the bound at which a bucket of other edges counts."""

import math
import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from itertools import accumulate, pairwise
from weakref import WeakValueDictionary

from otel_zernel_libraries.histograms.restarts import begins_again
from otel_zernel_libraries.prometheus.histograms.exponential import ExponentialBuckets, edge

_MAX_POSITIONS = 20_000
"""The most positions kept for one set of bounds. A metric's points need about 160."""
_UPPER_BOUND = struct.Struct("<Bd")
_UPPER_BOUND_TAG = 2 << 3 | 1
"""`upper_bound` of `io.prometheus.client.Bucket`: field 2, 64 bits."""


class Bounds:
    """Ascending finite bounds of classic buckets. The last bucket, up to +Inf, has no bound here.

    A count belongs to the first bound that is not below the upper edge of its source's bucket. So a bucket never counts
    a value that may be above its bound, and a value counts too high by less than its source's bucket is wide.
    """

    def __init__(self, values: tuple[float, ...]) -> None:
        self.values = values
        self._positions: dict[tuple[int, int], int] = {}

    @cached_property
    def tails(self) -> tuple[str, ...]:
        """The ends of the prefixes of the buckets' lines, after `le="`."""
        return tuple(f'{bound_text(bound)}"}} ' for bound in (*self.values, math.inf))

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        """The upper bounds of the buckets as fields of Prometheus' protobuf format."""
        return tuple(_UPPER_BOUND.pack(_UPPER_BOUND_TAG, bound) for bound in (*self.values, math.inf))

    def position(self, value: float) -> int:
        """The index of the bucket of a value."""
        return bisect_left(self.values, value)

    def totals(self, buckets: ExponentialBuckets) -> list[int]:
        """The cumulative counts of an exponential histogram at these bounds, shape (n + 1,)."""
        counts = [0] * (len(self.values) + 1)
        scale = buckets.scale
        for index, count in buckets.negative.items():
            counts[self.position(0.0 - edge(index, scale))] += count
        counts[self.position(buckets.zero_threshold)] += buckets.zero_count
        for index, count in buckets.positive.items():
            counts[self._positive_position(index, scale)] += count
        counts[-1] += buckets.nan_count
        return list(accumulate(counts))

    def moved(self, bounds: "Bounds", counts: Sequence[int]) -> list[int]:
        """Counts of the buckets of other bounds, shape (m + 1,), as counts of these buckets, shape (n + 1,)."""
        moved = [0] * (len(self.values) + 1)
        for bound, count in zip((*bounds.values, math.inf), counts, strict=True):
            moved[self.position(bound)] += count
        return moved

    def _positive_position(self, index: int, scale: int) -> int:
        known = self._positions.get((index, scale))
        if known is None:
            if len(self._positions) >= _MAX_POSITIONS:
                self._positions.clear()
            known = self._positions[index, scale] = self.position(edge(index + 1, scale))
        return known


_in_use: WeakValueDictionary[tuple[float, ...], Bounds] = WeakValueDictionary()


def bounds_of(values: tuple[float, ...]) -> Bounds:
    """The object of these bounds. It is shared, because the text of the labels takes most of a histogram's memory."""
    shared = _in_use.get(values)
    if shared is None:
        shared = _in_use[values] = Bounds(values)
    return shared


def ascending(values: Sequence[float]) -> bool:
    """Whether the values can be bounds: finite, each above the one before."""
    return all(map(math.isfinite, values)) and all(low < high for low, high in pairwise(values))


def bound_text(value: float) -> str:
    """A bound as Prometheus writes it if it reads the protobuf format: `1e+06`, not `1000000.0`.

    So the label `le` is the same, whatever the format of the scrape. It is `strconv.FormatFloat(value, 'g', -1, 64)` of
    Go, with `.0` at the end of whole numbers.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    exponent = Decimal(repr(value)).adjusted() if value else 0
    if -4 <= exponent < 6:
        return repr(float(value))
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}{'.' if rest else ''}{''.join(rest)}e{exponent:+03d}"


class SteadyTotals:
    """The counts of one exponential histogram at classic bounds.

    A coarser bucket counts at a higher bound, so the count up to the bounds below it would decrease. Prometheus would
    read that as a restart, and add the whole count once more. The former count is true, too: so many values, at least,
    are not above the bound.
    """

    __slots__ = ("_bounds", "_start", "_time", "_totals")

    def __init__(self) -> None:
        self._bounds: Bounds | None = None
        self._totals = array("Q")
        self._start = self._time = 0

    def of(self, bounds: Bounds, totals: list[int], start: int, time: int) -> list[int]:
        """The counts of the next point, shape (n + 1,). `start` and `time` are the point's, both in the same unit."""
        if time < self._time:
            return totals
        if self._bounds is bounds and not self._begins_again(totals, start):
            totals = [*map(max, totals, self._totals)]
        self._bounds, self._totals, self._start, self._time = bounds, array("Q", totals), start, time
        return totals

    def _begins_again(self, totals: Sequence[int], start: int) -> bool:
        return totals[-1] < self._totals[-1] or begins_again(start, self._start, self._time)
