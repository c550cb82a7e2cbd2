"""What a conversion remembers of one series."""

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    NumberDataPoint,
    SummaryDataPoint,
)

from otel_zernel_libraries.histograms.amounts import Amount, MalformedAmount, NumberAmount, SummaryAmount
from otel_zernel_libraries.histograms.explicit import ExplicitAmount
from otel_zernel_libraries.histograms.exponential import ExponentialAmount
from otel_zernel_libraries.histograms.restarts import begins_again

_KINDS: Final[Mapping[type[Any], type[Amount]]] = {
    NumberDataPoint: NumberAmount,
    HistogramDataPoint: ExplicitAmount,
    ExponentialHistogramDataPoint: ExponentialAmount,
    SummaryDataPoint: SummaryAmount,
}


def amount_of(point: Any, *, monotonic: bool = True) -> Amount:
    """The amount in a point. Raises `MalformedAmount`."""
    try:
        return _KINDS[type(point)].of(point, monotonic=monotonic)
    except OverflowError:
        raise MalformedAmount from None


_MOST_GAPS = 8
"""Gaps that wait for late deltas. Beyond them, the oldest is forgotten."""

_MOST_COUNTED = 8
"""Deltas of a series that are recognized when they are repeated."""

_PATIENCE_NS = 60_000_000_000
"""Ns in which every point of a series is late, after which its sender's clock must have been set back."""

Interval = tuple[int, int]
"""A start and an end, in ns since 1970."""


class Track:
    """The newest amount of a series."""

    __slots__ = ("amount", "end_ns", "late_since_ns", "start_ns", "updated_ns", "weight")

    def __init__(self, amount: Amount, start_ns: int, end_ns: int) -> None:
        self.amount = amount
        self.start_ns = start_ns
        """Since when the amount counts, in ns since 1970."""
        self.end_ns = end_ns
        """The time of the newest point, in ns since 1970."""
        self.updated_ns = 0
        """When the newest point arrived, in ns since 1970."""
        self.weight = amount.weight
        """The weight of the amount when it was stored."""
        self.late_since_ns: int | None = None
        """When the first late point after the newest one arrived, in ns since 1970."""

    def increase(self, amount: Amount, start_ns: int) -> Amount | None:
        """The values of the next cumulative amount that this one does not have. It starts at `start_ns`, 0 if unknown.

        None after a reset: all its values are new. Raises `NotComparable`: it is unknown which of them are new.
        """
        if begins_again(start_ns, self.start_ns, self.end_ns):
            return None
        return amount.minus(self.amount)

    def is_set_back(self, now_ns: int) -> bool:
        """Whether all points have been late for a minute. Called for every late point."""
        if self.late_since_ns is None or now_ns < self.late_since_ns:
            self.late_since_ns = now_ns
        return now_ns - self.late_since_ns >= _PATIENCE_NS


class DeltaTrack(Track):
    """The total of a series of deltas, and the intervals that no delta has covered yet."""

    __slots__ = ("counted", "gaps")

    def __init__(self, amount: Amount, start_ns: int, end_ns: int) -> None:
        super().__init__(amount, start_ns, end_ns)
        self.gaps: tuple[Interval, ...] = ((0, start_ns),)
        self.counted: tuple[int, ...] = ()
        """The hashes of the newest deltas in the total."""

    def is_free(self, start_ns: int, end_ns: int) -> bool:
        """Whether a late delta of this interval is missing in the total. If not, it was counted before."""
        return any(low <= start_ns and end_ns <= high for low, high in self.gaps)

    def count(self, before: "DeltaTrack | None", delta: int) -> None:
        """Remembers the hash of a delta, and those that the former track has."""
        former = () if before is None else before.counted
        self.counted = (*former[1 - _MOST_COUNTED :], delta)

    def without(self, start_ns: int, end_ns: int) -> tuple[Interval, ...]:
        """The gaps that a late delta of this interval leaves."""
        left: list[Interval] = []
        for low, high in self.gaps:
            if low <= start_ns and end_ns <= high:
                left += [(low, start_ns), (end_ns, high)]
            else:
                left.append((low, high))
        return tuple(gap for gap in left if gap[0] < gap[1])[-_MOST_GAPS:]

    def with_gap(self, start_ns: int) -> tuple[Interval, ...]:
        """The gaps once a delta that starts at `start_ns` is the newest one."""
        return (*self.gaps, (self.end_ns, start_ns))[-_MOST_GAPS:] if start_ns > self.end_ns else self.gaps
