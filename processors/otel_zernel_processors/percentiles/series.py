"""The series that percentiles are taken of: who they are, and what was counted since each began."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from otel_zernel_processors.percentiles.config import PercentilesConfig


@dataclass(frozen=True, slots=True)
class PercentileStream:
    """A metric of a resource and scope, as it will be output; the messages are encoded."""

    resource: bytes
    scope: bytes
    name: str
    unit: str
    description: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class PercentileSeries:
    """A stream and the attributes kept of its points, each an encoded KeyValue, in the order of the keys."""

    stream: PercentileStream
    attributes: tuple[bytes, ...]
    start_ns: int
    """When its first value came."""


def encode_attributes(attributes: Sequence[KeyValue], kept: frozenset[str] | None) -> tuple[bytes, ...]:
    """The kept attributes (None: all), encoded, in the order of their keys."""
    chosen = [pair for pair in attributes if kept is None or pair.key in kept]
    return tuple(pair.SerializeToString(deterministic=True) for pair in sorted(chosen, key=lambda pair: pair.key))


class PercentileSeriesTable:
    """Gives each series a slot: its place in the arrays below, all of shape (max_series,)."""

    def __init__(self, config: PercentilesConfig) -> None:
        size = config.max_series
        self._config = config
        self._slots: dict[tuple[PercentileStream, tuple[bytes, ...]], int] = {}
        self._free = list(range(size))[::-1]
        self.series: dict[int, PercentileSeries] = {}
        self.per_unit = np.ones(size)
        """Counted integers to one of the metric's unit."""
        self.limit = np.zeros(size)
        """The largest integer that is counted."""
        self.count = np.zeros(size, np.int64)
        self.sum = np.zeros(size)
        self.last_ns = np.zeros(size, np.int64)
        """When the last value came."""
        self._ended_ns = np.zeros(size, np.int64)

    def slot(self, stream: PercentileStream, attributes: tuple[bytes, ...], now_ns: int) -> int | None:
        """The slot of a series, a new one if need be; None if there is no more room."""
        key = stream, attributes
        slot = self._slots.get(key)
        if slot is None and self._free:
            slot = self._slots[key] = self._free.pop()
            self._begin(slot, PercentileSeries(stream, attributes, now_ns))
        return slot

    def _begin(self, slot: int, series: PercentileSeries) -> None:
        resolution, max_value = self._config.range_of(series.stream.unit)
        per_unit = 1 / resolution
        if per_unit > 1 and abs(per_unit - round(per_unit)) < 1e-6 * per_unit:
            per_unit = round(per_unit)  # 1e-9 has no exact double, a billion has
        self.series[slot] = series
        self.per_unit[slot] = per_unit
        self.limit[slot] = max(round(max_value * per_unit), 1)
        self.count[slot] = self.sum[slot] = 0
        self.last_ns[slot] = series.start_ns
        self._ended_ns[slot] = 0

    def end(self, stream: PercentileStream, attributes: tuple[bytes, ...], now_ns: int) -> None:
        """Notes that no more values of a series will come; if one does, nothing was noted."""
        slot = self._slots.get((stream, attributes))
        if slot is not None:
            self._ended_ns[slot] = now_ns

    def expire(self, before_ns: int, reported_ns: int) -> dict[int, PercentileSeries]:
        """Forgets the series whose last value is older than `before_ns`, and those that have ended and whose last value
        is no younger than `reported_ns`. Returns them by slot."""
        slots = np.fromiter(self.series, np.int64, len(self.series))
        last, ended = self.last_ns[slots], self._ended_ns[slots]
        gone = slots[(last < before_ns) | ((ended >= last) & (last <= reported_ns))].tolist()
        for slot in gone:
            series = self.series[slot]
            del self._slots[series.stream, series.attributes]
            self._free.append(slot)
        return {slot: self.series.pop(slot) for slot in gone}
