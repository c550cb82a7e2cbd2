"""Counts the points of metrics in the histograms of their series."""

import struct
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Final

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    ExponentialHistogram,
    Histogram,
    Metric,
    NumberDataPoint,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch.parsing import parse
from otel_zernel.component import Context
from otel_zernel.health import REPEATED
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel.protobuf import delimited
from otel_zernel_libraries.histograms.amounts import MalformedAmount, NotComparable
from otel_zernel_libraries.histograms.hdr import Floats, HdrLayout, Ints
from otel_zernel_libraries.histograms.temporality.track import Track, amount_of
from otel_zernel_processors.percentiles.config import PercentilesConfig
from otel_zernel_processors.percentiles.counts.exemplars import Exemplars
from otel_zernel_processors.percentiles.counts.series import PercentileSeriesTable, PercentileStream, encode_attributes
from otel_zernel_processors.percentiles.counts.window import WindowCounts
from otel_zernel_processors.percentiles.declared import CLAMPED
from otel_zernel_processors.percentiles.intake.distribution import HistogramPoint, HistogramState, ranges, spread

_DATA_POINTS = 0x0A  # field 1 of Gauge and Sum, length-delimited
_TIMES = b"\x11\x19"  # start_time_unix_nano (2) and time_unix_nano (3), fixed64
_DOUBLE, _EXEMPLARS, _INT = 0x21, 0x2A, 0x31  # as_double (4), exemplars (5), as_int (6)
_FIXED64 = 9  # bytes of such a field with its tag


def number_runs(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """For each run of points that differ only in times and values: their common rest, and their values as doubles.

    `data` is an encoded Gauge or Sum. The rest is an encoded NumberDataPoint with attributes and flags, without times,
    value and exemplars. The values are little-endian float64. A point without a value is skipped, unless its flags say
    that it has no recorded value: then the values are empty.
    """
    at = 0
    while at < len(data) and data[at] == _DATA_POINTS:
        size, body = _varint(data, at + 1)
        end = body + size
        value = body
        while value < end and data[value] in _TIMES:
            value += _FIXED64
        rest = value + _FIXED64
        if rest > end or data[value] not in (_DOUBLE, _INT) or (rest < end and data[rest] == _EXEMPLARS):
            yield from _unusual(data[body:end])
        else:
            stride = end - at
            run = 1
            if end + stride <= len(data) and data[rest:end] == data[rest + stride : end + stride]:
                run = _run_length(data, at, stride, slice(body - at, rest - at))
            end = at + run * stride
            yield data[rest : at + stride], _doubles(data, value, stride, run)
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and the position after it."""
    value = shift = 0
    while data[at] > 0x7F:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1


def _unusual(encoded: bytes) -> Iterator[tuple[bytes, bytes]]:
    point = parse(NumberDataPoint, encoded)
    kind = point.WhichOneof("value")
    if kind is None and not point.flags:
        return
    value = struct.pack("<d", getattr(point, kind)) if kind else b""
    for field in ("start_time_unix_nano", "time_unix_nano", "as_double", "as_int", "exemplars"):
        point.ClearField(field)
    yield point.SerializeToString(), value


def _run_length(data: bytes, at: int, stride: int, fixed64: slice) -> int:
    """The number of consecutive points from `at`, of `stride` bytes, that differ only in the `fixed64` values."""
    rows = np.frombuffer(data, np.uint8, offset=at, count=(len(data) - at) // stride * stride).reshape(-1, stride)
    payload = np.zeros(stride, bool)
    payload[fixed64] = True
    payload[fixed64.start : fixed64.stop : _FIXED64] = False
    some = 16
    while True:
        frames = rows[:some].copy()
        frames[:, payload] = 0
        same = (frames == frames[0]).all(axis=1)
        if not same.all():
            return int(same.argmin())
        if some >= len(rows):
            return len(rows)
        some *= 8


def _doubles(data: bytes, value: int, stride: int, run: int) -> bytes:
    if data[value] == _DOUBLE and run == 1:
        return data[value + 1 : value + _FIXED64]
    stored = "<f8" if data[value] == _DOUBLE else "<i8"
    values = np.ndarray((run,), stored, data, offset=value + 1, strides=(stride,))
    return values.astype("<f8").tobytes()


_MOST: Final = 100_000
"""Deltas in each of the two sets, about 10 MB."""


class RepeatedDeltas:
    """The newest deltas, at least 100,000 of them. Older ones are forgotten."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._newest: set[int] = set()
        self._older: set[int] = set()

    def add(self, series: Hashable, point: HistogramPoint | NumberDataPoint) -> bool:
        """Whether the delta is new. A delta without a time always is.

        Only an equal point of the same series is a repetition: two senders may share a series.
        """
        if not point.time_unix_nano:
            return True
        seen = hash((series, point.SerializeToString(deterministic=True)))
        if seen in self._newest or seen in self._older:
            return False
        if len(self._newest) >= self._most:
            self._newest, self._older = set(), self._newest
        self._newest.add(seen)
        return True


class CumulativeDifferences:
    """The previous point of each cumulative series."""

    def __init__(self, max_series: int, began_ns: int) -> None:
        """`began_ns` is the start of the processor, in ns since 1970."""
        self._max_series = max_series
        self._began_ns = began_ns
        self._last: dict[Hashable, Track] = {}

    def increase(self, series: Hashable, point: HistogramPoint, now_ns: int) -> HistogramState | None:
        """The increase since the previous point of the series; None if there are `max_series` already.

        After a reset, the increase is the whole point. So it is for the first point of a series that started after the
        processor; for older series it is empty, as in otelcol's cumulativetodelta. A late point has nothing that a
        later one does not have: its increase is empty. Raises `MalformedAmount`, and `ValueError` if the point's fields
        contradict each other.
        """
        state, amount, start_ns = HistogramState.of(point), amount_of(point), point.start_time_unix_nano
        last = self._last.get(series)
        if last is None and len(self._last) >= self._max_series:
            return None
        if last and 0 < point.time_unix_nano < last.end_ns and not last.is_set_back(now_ns):
            return state.emptied()
        self._last[series] = Track(amount, start_ns, point.time_unix_nano)
        self._last[series].updated_ns = now_ns
        if last is None:
            return state if start_ns > self._began_ns else state.emptied()
        try:
            increase = last.increase(amount, start_ns)
        except NotComparable:
            return state.emptied()
        if increase is None:
            return state
        gained = type(point)()
        increase.write(gained)
        for limit in ("min", "max"):  # the new values lie between the extremes of all values
            if point.HasField(limit):
                setattr(gained, limit, getattr(point, limit))
        return HistogramState.of(gained)

    def end(self, series: Hashable) -> None:
        """Forgets a series that has ended."""
        self._last.pop(series, None)

    def expire(self, before_ns: int) -> None:
        """Forgets series whose previous point is older."""
        self._last = {series: last for series, last in self._last.items() if last.updated_ns >= before_ns}


_NO_SLOT = -1  # the slot of points without a recorded value
_KNOWN = 4  # cached metrics and points for each of max_series
_HISTOGRAMS = 500  # counted together: each takes memory for all of its buckets

MetricKey = tuple[bytes, bytes, str, str, bool]
"""Encoded resource, encoded scope, name and unit of an input metric, and whether it is a histogram."""


class Intake:
    """Collects the values of each series in a batch, and counts them together."""

    def __init__(
        self,
        config: PercentilesConfig,
        context: Context,
        table: PercentileSeriesTable,
        counts: WindowCounts,
        began_ns: int,
        exemplars: Exemplars | None = None,
    ) -> None:
        """`began_ns` is the start of the processor, in ns since 1970."""
        self._context = context
        self._exemplars = exemplars
        self._table = table
        self._counts = counts
        self._layout = HdrLayout(significant_figures=config.significant_figures)
        self._kept = None if config.group_by is None else frozenset(config.group_by)
        self._clamped = context.meter.create_counter(*CLAMPED.counter)
        self._increases = CumulativeDifferences(config.max_series, began_ns)
        self._deltas = RepeatedDeltas()
        # No tuples of streams and slots: a full collection of garbage visits each, and it blocks the event loop.
        self._streams: dict[MetricKey, PercentileStream] = {}
        self._slots_of: dict[MetricKey, dict[bytes, int]] = {}
        self._known_size = 0
        self._max_known = _KNOWN * config.max_series
        self._lost: Counter[str] = Counter()
        self._slots: list[int] = []
        self._runs: list[int] = []
        self._doubles = bytearray()
        self._histograms: list[tuple[int, HistogramState]] = []
        self.has_counted = False
        """Whether it has counted values since this was set to False."""

    def collect(self, resource: bytes, scope: bytes, metric: Metric, now_ns: int) -> None:
        """Collects the points of a gauge, sum or histogram. Call `count` after the last metric."""
        kind = metric.WhichOneof("data")
        key = resource, scope, metric.name, metric.unit, kind not in ("gauge", "sum")
        stream = self._streams.get(key) or self._cache(key, metric.description)
        match kind:
            case "gauge":
                self._collect_numbers(stream, self._slots_of[key], metric.gauge.SerializeToString(), now_ns)
            case "sum":
                self._collect_numbers(stream, self._slots_of[key], self._without_repeated(key, metric.sum), now_ns)
            case "histogram":
                self._collect_histogram(key, stream, metric.histogram, now_ns)
            case "exponential_histogram":
                self._collect_histogram(key, stream, metric.exponential_histogram, now_ns)

    def _without_repeated(self, key: MetricKey, data: Sum) -> bytes:
        """The encoded sum without the deltas that are repeated."""
        if data.aggregation_temporality != AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA:
            return data.SerializeToString()
        new = [
            data_point
            for data_point in data.data_points
            if has_no_value(data_point) or self._deltas.add(key, data_point)
        ]
        self._lost[REPEATED] += len(data.data_points) - len(new)
        return Sum(data_points=new).SerializeToString()

    def expire(self, before_ns: int, slots_freed: bool) -> None:
        """Forgets series without points since `before_ns`; clears the cache of slots if some were freed."""
        self._increases.expire(before_ns)
        if slots_freed:
            self._forget_known()

    def _cache(self, key: MetricKey, description: str) -> PercentileStream:
        self._make_room()
        resource, scope, name, unit, is_histogram = key
        attributes = encode_attributes(parse(Resource, resource).attributes, self._kept)
        encoded = b"".join(delimited(1, pair) for pair in attributes)
        stream = self._streams[key] = PercentileStream(encoded, scope, name, unit, is_histogram, description)
        self._slots_of[key] = {}
        return stream

    def _make_room(self) -> None:
        self._known_size += 1
        if self._known_size > self._max_known:
            self._forget_known()
            self._known_size = 1

    def _forget_known(self) -> None:
        self._streams.clear()
        self._slots_of.clear()
        self._known_size = 0

    def _collect_numbers(self, stream: PercentileStream, slots: dict[bytes, int], encoded: bytes, now_ns: int) -> None:
        for rest, doubles in number_runs(encoded):
            slot = slots.get(rest)
            if slot is None:
                slot = self._find(stream, slots, rest, now_ns)
            if slot is None:
                self._lost["max_series"] += len(doubles) // 8
            elif slot != _NO_SLOT:
                self._slots.append(slot)
                self._runs.append(len(doubles) // 8)
                self._doubles += doubles

    def _find(self, stream: PercentileStream, slots: dict[bytes, int], rest: bytes, now_ns: int) -> int | None:
        point = parse(NumberDataPoint, rest)
        if has_no_value(point):
            self._end(stream, point.attributes, now_ns)
            return _NO_SLOT
        slot = self._table.slot(stream, encode_attributes(point.attributes, self._kept), now_ns)
        if slot is not None:
            self._make_room()
            slots[rest] = slot
        return slot

    def _collect_histogram(
        self, key: MetricKey, stream: PercentileStream, histogram: Histogram | ExponentialHistogram, now_ns: int
    ) -> None:
        temporality = histogram.aggregation_temporality
        if temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_UNSPECIFIED:
            self._lost["temporality"] += len(histogram.data_points)
            return
        is_cumulative = temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        for point in histogram.data_points:
            if has_no_value(point):
                self._increases.end((key, encode_attributes(point.attributes, None)))
                self._end(stream, point.attributes, now_ns)
            elif reason := self._collect_point(key, stream, point, now_ns, is_cumulative=is_cumulative):
                self._lost[reason] += 1
            if len(self._histograms) >= _HISTOGRAMS:
                self.count(now_ns)

    def _end(self, stream: PercentileStream, attributes: Sequence[KeyValue], now_ns: int) -> None:
        """Marks the end of a series. With `group_by`, other series may be merged into it: it does not end."""
        if self._kept is None:
            self._table.end(stream, encode_attributes(attributes, None), now_ns)

    def _collect_point(
        self, key: MetricKey, stream: PercentileStream, point: HistogramPoint, now_ns: int, *, is_cumulative: bool
    ) -> str | None:
        """Collects one histogram point. Returns the reason if it is dropped."""
        try:
            series = key, encode_attributes(point.attributes, None)
            state: HistogramState | None
            state = self._increases.increase(series, point, now_ns) if is_cumulative else HistogramState.of(point)
        except (ValueError, OverflowError, MalformedAmount):
            return "invalid"
        slot = self._table.slot(stream, encode_attributes(point.attributes, self._kept), now_ns)
        if slot is None or state is None:
            return "max_series"
        if not is_cumulative and not self._deltas.add(series, point):
            return REPEATED
        self._histograms.append((slot, state))
        if self._exemplars is not None and point.exemplars:
            self._exemplars.add(slot, point.exemplars)
        return None

    def count(self, now_ns: int) -> None:
        """Counts all collected values."""
        slots, runs, doubles, histograms = self._slots, self._runs, self._doubles, self._histograms
        self._slots = []
        self._runs = []
        self._doubles = bytearray()
        self._histograms = []
        if slots:
            slots_of_values = np.repeat(np.array(slots, np.int64), runs)
            self._count_values(slots_of_values, np.frombuffer(bytes(doubles), "<f8"), now_ns)
        if histograms:
            self._count_states(histograms, now_ns)
        for reason, lost in (+self._lost).items():
            self._context.drop(lost, reason)
        self._lost.clear()
        self.has_counted |= bool(slots or histograms)

    def _count_values(self, slots: Ints, values: Floats, now_ns: int) -> None:
        good = values >= 0
        if not good.all():
            self._lost["nan"] += int(np.isnan(values).sum())
            self._lost["negative"] += int((values < 0).sum())
            slots, values = slots[good], values[good]
        with np.errstate(over="ignore"):
            units = np.rint(values * self._table.per_unit[slots])
        over = units > self._table.limit[slots]
        if over.any():
            units[over] = self._table.limit[slots[over]]
            values = np.where(over, units / self._table.per_unit[slots], values)
            self._clamped.add(int(over.sum()))
        self._add(slots, units.astype(np.int64), None, now_ns)
        np.add.at(self._table.sum, slots, values)

    def _count_states(self, histograms: Sequence[tuple[int, HistogramState]], now_ns: int) -> None:
        slots, states = np.array([slot for slot, _ in histograms]), [histogram for _, histogram in histograms]
        per_unit = self._table.per_unit[slots]
        first, last = ranges(states, per_unit)
        counts = np.concatenate([state.buckets.counts for state in states])
        state_of_bucket = np.repeat(np.arange(len(histograms)), [len(state.buckets.keys) for state in states])
        bucket, units, times = spread(self._layout, first, last, counts)
        slots_of_values = slots[state_of_bucket[bucket]]
        limit = self._table.limit[slots_of_values].astype(np.int64)
        if (units > limit).any():
            self._clamped.add(int(times[units > limit].sum()))
        self._add(slots_of_values, np.minimum(units, limit), times, now_ns)
        middles = np.bincount(state_of_bucket, (first / 2 + last / 2) * counts, len(histograms)) / per_unit
        sums = [middle if state.sum is None else state.sum for state, middle in zip(states, middles, strict=True)]
        np.add.at(self._table.sum, slots, sums)
        self._lost["negative"] += sum(state.negative for state in states)

    def _add(self, slots: Ints, units: Ints, times: Ints | None, now_ns: int) -> None:
        self._counts.add(slots, units, times)
        np.add.at(self._table.count, slots, 1 if times is None else times)
        self._table.last_ns[slots] = now_ns
