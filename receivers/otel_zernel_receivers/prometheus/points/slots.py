"""The samples of one histogram, summary or number, by their positions on the page."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from otel_zernel_receivers.prometheus.points.sample import PageSample, PointKey


@dataclass(slots=True)
class PointSlot:
    """The positions of the samples of one point. None for a sample that is not on the page."""

    point: PointKey
    number: int | None = None
    """The value of a number, or a native histogram."""
    sum: int | None = None
    count: int | None = None
    created: int | None = None
    bounds: dict[float, int] = field(default_factory=dict)
    """The position of each bucket by its upper bound, or of each quantile."""
    scale: float = 1.0
    maybe_percent: bool = False
    order: list[float] = field(default_factory=list)
    """The finite bounds, or the quantiles, ascending."""

    def add(self, sample: PageSample, position: int) -> bool:
        """Takes a sample. Returns whether it is new."""
        if sample.role in ("bucket", "quantile"):
            return self.bounds.setdefault(sample.bound, position) == position
        name = sample.role if sample.role in ("sum", "count", "created") else "number"
        if getattr(self, name) is not None:
            return False
        setattr(self, name, position)
        if name == "number":
            self.scale, self.maybe_percent = sample.scale, sample.maybe_percent
        else:
            self.scale = sample.scale
        return True

    def finish(self) -> bool:
        """Prepares the encoding. Returns whether the samples are enough for a point."""
        kind = self.point.metric.descriptor.kind
        if kind == "histogram":
            self.order = sorted(bound for bound in self.bounds if math.isfinite(bound))
            return self.total is not None
        if kind == "summary":
            self.order = sorted(self.bounds)
            return bool(self.bounds) or self.count is not None
        return self.number is not None

    @property
    def total(self) -> int | None:
        """The position of the count of all values: the bucket +Inf, else `_count`."""
        return self.bounds.get(math.inf, self.count)

    @property
    def counted(self) -> int | None:
        """The position of the sample that only grows."""
        if self.point.metric.descriptor.kind == "histogram":
            return self.total
        return self.number if self.number is not None else self.count

    def positions(self) -> Iterator[int]:
        """The positions of all samples."""
        yield from self.bounds.values()
        yield from (place for place in (self.number, self.sum, self.count, self.created) if place is not None)
