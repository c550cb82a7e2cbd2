"""The amount in a data point: what a delta adds to a cumulative total.

There is one class for each kind of point. Amounts add up and subtract, whatever the buckets of the two histograms are.
"""

import math
from typing import Any, Protocol, Self

from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint, SummaryDataPoint

LARGEST_INTEGER = 2**63 - 1
"""The largest integer of a number point."""
LARGEST_COUNT = 2**64 - 1
"""The largest count of a histogram point."""


class MalformedAmount(Exception):
    """The fields of a point contradict each other, or it cannot be added up."""


class NotComparable(Exception):
    """Two points of a series are of different kinds, so their difference is unknown. That is no reset."""


class Amount(Protocol):
    """An amount. It never changes: `plus` and `minus` return another one."""

    @classmethod
    def of(cls, point: Any, *, monotonic: bool) -> Self:
        """The amount in a point. Raises `MalformedAmount`."""
        ...

    @property
    def weight(self) -> int:
        """The number of values it keeps, for a limit of memory."""
        ...

    def plus(self, other: Self) -> Self | None:
        """The sum; None if it is larger than a point can hold."""
        ...

    def minus(self, earlier: Any) -> Self | None:
        """The increase since an earlier amount; None if there was a reset in between.

        Raises `NotComparable` if the earlier amount is of another kind.
        """
        ...

    def write(self, point: Any) -> None:
        """Sets the fields of a point of the same kind. Other fields stay."""
        ...


class NumberAmount:
    """The value of a sum: an integer as long as all values are integers."""

    __slots__ = ("value",)
    weight = 1

    def __init__(self, value: float) -> None:
        self.value = value

    @classmethod
    def of(cls, point: NumberDataPoint, *, monotonic: bool) -> Self:
        value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        if not math.isfinite(value) or (monotonic and value < 0):
            raise MalformedAmount
        return cls(value)

    def plus(self, other: Self) -> Self | None:
        total = type(self)(self.value + other.value)
        return total if math.isfinite(total.value) else None

    def minus(self, earlier: Any) -> Self | None:
        if not isinstance(earlier, NumberAmount):
            raise NotComparable
        return type(self)(self.value - earlier.value) if self.value >= earlier.value else None

    def write(self, point: NumberDataPoint) -> None:
        if isinstance(self.value, int) and abs(self.value) <= LARGEST_INTEGER:
            point.as_int = self.value
        else:
            point.as_double = self.value


class SummaryAmount:
    """The count and the sum of a summary. Its quantiles cannot be added up."""

    __slots__ = ("count", "total")
    weight = 1

    def __init__(self, count: int, total: float) -> None:
        self.count = count
        self.total = total

    @classmethod
    def of(cls, point: SummaryDataPoint, *, monotonic: bool) -> Self:
        return cls(point.count, point.sum)

    def plus(self, other: Self) -> Self | None:
        count = self.count + other.count
        return type(self)(count, self.total + other.total) if count <= LARGEST_COUNT else None

    def minus(self, earlier: Any) -> Self | None:
        if not isinstance(earlier, SummaryAmount):
            raise NotComparable
        count = self.count - earlier.count
        return type(self)(count, self.total - earlier.total) if count >= 0 else None

    def write(self, point: SummaryDataPoint) -> None:
        point.count, point.sum = self.count, self.total


class Extremes:
    """The sum, the minimum and the maximum of a histogram point; None for those that are not known."""

    __slots__ = ("highest", "lowest", "total")

    def __init__(self, total: float | None, lowest: float | None, highest: float | None) -> None:
        self.total = total
        self.lowest = lowest
        self.highest = highest

    @classmethod
    def of(cls, point: Any) -> Self:
        return cls(*(getattr(point, name) if point.HasField(name) else None for name in ("sum", "min", "max")))

    def plus(self, other: Self) -> Self:
        return type(self)(
            None if self.total is None or other.total is None else self.total + other.total,
            None if self.lowest is None or other.lowest is None else min(self.lowest, other.lowest),
            None if self.highest is None or other.highest is None else max(self.highest, other.highest),
        )

    def minus(self, earlier: Self) -> Self:
        """The sum of the increase. Its minimum and maximum are known only if they are new ones."""
        return type(self)(
            None if self.total is None or earlier.total is None else self.total - earlier.total,
            None if self.lowest is None or self.lowest >= _or(earlier.lowest, -math.inf) else self.lowest,
            None if self.highest is None or self.highest <= _or(earlier.highest, math.inf) else self.highest,
        )

    def write(self, point: Any) -> None:
        for name, value in (("sum", self.total), ("min", self.lowest), ("max", self.highest)):
            if value is None:
                point.ClearField(name)
            else:
                setattr(point, name, value)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
