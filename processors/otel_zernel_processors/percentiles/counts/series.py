"""The series of the percentiles: their identity, and their totals since each began."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from otel_zernel_processors.percentiles.config import PercentilesConfig


@dataclass(frozen=True, slots=True)
class PercentileStream:
    """A metric of a resource and scope. `resource` and `scope` are encoded messages."""

    resource: bytes
    scope: bytes
    name: str
    unit: str
    is_histogram: bool
    """Whether the points of the metric are histograms."""
    description: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class PercentileSeries:
    """A stream and the kept attributes of a point, as encoded KeyValues in the order of their keys."""

    stream: PercentileStream
    attributes: tuple[bytes, ...]
    start_ns: int = field(default=0, compare=False)
    """The time of the first value."""


def encode_attributes(attributes: Sequence[KeyValue], kept: frozenset[str] | None) -> tuple[bytes, ...]:
    """The kept attributes (None: all), encoded, in the order of their keys."""
    chosen = [pair for pair in attributes if kept is None or pair.key in kept]
    return tuple(pair.SerializeToString(deterministic=True) for pair in sorted(chosen, key=lambda pair: pair.key))


class PercentileSeriesTable:
    """Assigns each series a slot: its index in the arrays below, all of shape (max_series,)."""

    def __init__(self, config: PercentilesConfig) -> None:
        size = config.max_series
        self._config = config
        self._slots: dict[PercentileSeries, int] = {}
        self._size, self._used = size, 0
        """The number of slots, and of those that a series has ever had."""
        self._free: list[int] = []
        """Used slots without a series."""
        self.series: dict[int, PercentileSeries] = {}
        self.per_unit = np.ones(size)
        """The number of counted integers in one unit of the metric."""
        self.limit = np.zeros(size)
        """The largest integer that is counted. Larger ones count as this."""
        self.count = np.zeros(size, np.int64)
        self.sum = np.zeros(size)
        self.last_ns = np.zeros(size, np.int64)
        """The time of the last value."""
        self._ended_ns = np.zeros(size, np.int64)

    def slot(self, stream: PercentileStream, attributes: tuple[bytes, ...], now_ns: int) -> int | None:
        """The slot of a series, a new one for a new series; None if all are used."""
        series = PercentileSeries(stream, attributes, now_ns)
        slot = self._slots.get(series)
        if slot is None and (slot := self._take()) is not None:
            self._slots[series] = slot
            self._begin(slot, series)
        return slot

    def _take(self) -> int | None:
        """A slot without a series; None if there is none."""
        if self._free:
            return self._free.pop()
        if self._used == self._size:
            return None
        self._used += 1
        return self._used - 1

    def _begin(self, slot: int, series: PercentileSeries) -> None:
        resolution, max_value = self._config.range_of(series.stream.unit)
        per_unit = 1 / resolution
        if per_unit > 1 and abs(per_unit - round(per_unit)) < 1e-6 * per_unit:
            per_unit = round(per_unit)  # 1e-9 is no exact double, 1e9 is
        self.series[slot] = series
        self.per_unit[slot] = per_unit
        self.limit[slot] = max(round(max_value * per_unit), 1)
        self.count[slot] = self.sum[slot] = 0
        self.last_ns[slot] = series.start_ns
        self._ended_ns[slot] = 0

    def end(self, stream: PercentileStream, attributes: tuple[bytes, ...], now_ns: int) -> None:
        """Marks the end of a series. A later value cancels it."""
        slot = self._slots.get(PercentileSeries(stream, attributes))
        if slot is not None:
            self._ended_ns[slot] = now_ns

    def expire(self, before_ns: int, reported_ns: int) -> dict[int, PercentileSeries]:
        """Removes series whose last value is older than `before_ns`, and ended series whose last value was
        reported (is not after `reported_ns`). Returns them by slot."""
        slots = np.fromiter(self.series, np.int64, len(self.series))
        last, ended = self.last_ns[slots], self._ended_ns[slots]
        removed = slots[(last < before_ns) | ((ended >= last) & (last <= reported_ns))].tolist()
        for slot in removed:
            del self._slots[self.series[slot]]
            self._free.append(slot)
        return {slot: self.series.pop(slot) for slot in removed}
