"""Converts the points of a batch from one temporality to the other, in place."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Generic

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from otel_zernel.batch import Batch, points
from otel_zernel.clock import Clock
from otel_zernel.errors import DecodeError
from otel_zernel.health import REPEATED
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_libraries.histograms.amounts import Amount, MalformedAmount
from otel_zernel_libraries.histograms.temporality.memory import (
    AnyTrack,
    SeriesMemory,
    SeriesMemoryConfig,
    StreamIdentity,
)
from otel_zernel_libraries.histograms.temporality.track import DeltaTrack, Track, amount_of

_KINDS = frozenset({"sum", "histogram", "exponential_histogram"})


class LostPoint(Exception):
    """A point cannot be converted. The message is the reason, as `zernel.dropped_items` counts it."""


class Converter(ABC, Generic[AnyTrack]):
    """Converts the metrics of batches, and remembers their series."""

    source: ClassVar[int]
    """The one of `Batch.temporalities` that it converts."""
    counts_dropped: ClassVar[bool]
    """Whether to convert also the batches that a full queue drops: later points then include them. If not, the next
    point includes them because the conversion has not seen them."""

    def __init__(self, config: SeriesMemoryConfig, clock: Clock) -> None:
        self._clock = clock
        self._memory: SeriesMemory[AnyTrack] = SeriesMemory(config)

    def __len__(self) -> int:
        """The number of series in memory."""
        return len(self._memory)

    def concerns(self, batch: Batch) -> bool:
        """Whether the batch has points to convert. Cheap for a batch that was received."""
        try:
            return self.source in batch.temporalities
        except DecodeError:  # the bytes stay as they are: the backend reports the error
            return False

    def limit(self, config: SeriesMemoryConfig) -> None:
        """Changes the limits of the memory."""
        self._memory.limit(config)

    @abstractmethod
    def convert(self, batch: Batch, drop: Callable[[int, str], None]) -> Batch:
        """The batch, converted. It edits the batch only if it must.

        `drop(count, reason)` counts lost points: `max_series`, `out_of_order` or `invalid`.
        """


class Conversion(Converter[AnyTrack]):
    """Converts sums and histograms of the temporality `source` to `target`. Other metrics stay as they are."""

    target: ClassVar[int]

    def convert(self, batch: Batch, drop: Callable[[int, str], None]) -> Batch:
        lost: Counter[str] = Counter()
        metrics = batch.edit_metrics()
        now_ns = self._clock.time_ns()
        self.expire(now_ns)
        for resource in metrics.resource_metrics:
            encoded_resource = resource.resource.SerializeToString()
            for scope in resource.scope_metrics:
                encoded_scope = scope.scope.SerializeToString()
                for metric in scope.metrics:
                    self._convert_metric(encoded_resource, encoded_scope, metric, now_ns, lost)
                remove_empty(scope.metrics)
        for reason, count in lost.items():
            drop(count, reason)
        return batch

    def expire(self, now_ns: int) -> None:
        """Forgets idle series."""
        self._memory.expire(now_ns)

    def end(self, series: bytes) -> None:
        """Forgets a series that its sender has ended."""
        self._memory.end(series)

    @abstractmethod
    def convert_point(self, series: bytes, point: Any, amount: Amount, now_ns: int) -> bool:
        """Converts a point in place. Returns whether to keep it. Raises `LostPoint`."""

    def converts(self, kind: str, *, monotonic: bool) -> bool:
        """Whether metrics of this kind are converted."""
        return kind in _KINDS

    def _convert_metric(self, resource: bytes, scope: bytes, metric: Metric, now_ns: int, lost: Counter[str]) -> None:
        kind = metric.WhichOneof("data") or ""
        data = getattr(metric, kind, None)
        if data is None or getattr(data, "aggregation_temporality", None) != self.source:
            return
        monotonic = bool(getattr(data, "is_monotonic", True))
        if not self.converts(kind, monotonic=monotonic):
            return
        data.aggregation_temporality = self.target
        stream = StreamIdentity(resource, scope, metric, kind, monotonic=monotonic)
        data_points, kept = data.data_points, 0
        for index, point in enumerate(data_points):
            try:
                keep = self._convert(stream.of(point.attributes), point, now_ns, monotonic=monotonic)
            except LostPoint as reason:
                lost[str(reason)] += 1
                keep = False
            if keep:
                if kept < index:
                    data_points[kept].CopyFrom(point)
                kept += 1
        del data_points[kept:]

    def _convert(self, series: bytes, point: Any, now_ns: int, *, monotonic: bool) -> bool:
        if has_no_value(point):
            self.end(series)
            return True
        try:
            amount = amount_of(point, monotonic=monotonic)
        except MalformedAmount:
            raise LostPoint("invalid") from None
        return self.convert_point(series, point, amount, now_ns)


def remove_empty(metrics: Any) -> None:
    """Removes the metrics that have lost all their points."""
    for index in range(len(metrics) - 1, -1, -1):
        if not points(metrics[index]):
            del metrics[index]


CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA


class ToCumulative(Conversion[DeltaTrack]):
    """The total of each series starts at the start of its first delta. After an overflow it starts again.

    A late delta that fits into a gap between others is added without a point of its own, since a point must not be
    older than the previous one: the next point has it. Any other late delta is dropped: it was counted
    before, or another sender shares the series. If all deltas have been late for a minute, the sender's clock was set
    back, and the series goes on at the earlier time.
    """

    source = DELTA
    target = CUMULATIVE
    counts_dropped = True

    def convert_point(self, series: bytes, point: Any, amount: Amount, now_ns: int) -> bool:
        before, end, delta = self._memory.get(series), point.time_unix_nano, hash(point.SerializeToString())
        track, is_late = before, False
        if track is None:
            if self._memory.is_full:
                raise LostPoint("max_series")
            track = DeltaTrack(amount, point.start_time_unix_nano or end, end)
        elif end > track.end_ns:
            track = _with_next(track, point, amount)
        elif track.is_set_back(now_ns):
            track = _set_back(track, point, amount)
        else:
            if end and delta in track.counted:
                raise LostPoint(REPEATED)
            track, is_late = _with_late(track, point, amount), True
        track.count(before, delta)
        self._memory.set(series, track, now_ns)
        if is_late:
            return False
        point.start_time_unix_nano = track.start_ns
        track.amount.write(point)
        return True


def _with_next(track: DeltaTrack, point: Any, amount: Amount) -> DeltaTrack:
    start, end = point.start_time_unix_nano or track.end_ns, point.time_unix_nano
    total = track.amount.plus(amount)
    if total is None:
        return DeltaTrack(amount, start, end)
    following = DeltaTrack(total, track.start_ns, end)
    following.gaps = track.with_gap(start)
    return following


def _with_late(track: DeltaTrack, point: Any, amount: Amount) -> DeltaTrack:
    """Raises `LostPoint` if the delta fits into no gap."""
    start, end = point.start_time_unix_nano, point.time_unix_nano
    total = track.amount.plus(amount) if start and track.is_free(start, end) else None
    if total is None:
        raise LostPoint("out_of_order")
    same = DeltaTrack(total, track.start_ns, track.end_ns)
    same.gaps, same.late_since_ns = track.without(start, end), track.late_since_ns
    return same


def _set_back(track: DeltaTrack, point: Any, amount: Amount) -> DeltaTrack:
    start, end = point.start_time_unix_nano or point.time_unix_nano, point.time_unix_nano
    total = track.amount.plus(amount)
    return DeltaTrack(amount, start, end) if total is None else DeltaTrack(total, min(track.start_ns, start), end)


class ToDelta(Conversion[Track]):
    """The first point of a series counts as a whole if the series began after this conversion, else it is the baseline.

    So does otelcol's cumulativetodelta. A decrease, or a start after the previous point, is a reset: the whole point
    counts. Sums that are not monotonic stay cumulative, as in the SDKs. If all points have been late for a minute, the
    sender's clock was set back, and the series goes on at the earlier time.
    """

    source = CUMULATIVE
    target = DELTA
    counts_dropped = False

    def __init__(self, config: SeriesMemoryConfig, clock: Clock) -> None:
        super().__init__(config, clock)
        self._began_ns = clock.time_ns()

    def converts(self, kind: str, *, monotonic: bool) -> bool:
        return monotonic and super().converts(kind, monotonic=monotonic)

    def convert_point(self, series: bytes, point: Any, amount: Amount, now_ns: int) -> bool:
        track, start, end = self._memory.get(series), point.start_time_unix_nano, point.time_unix_nano
        if track is None and self._memory.is_full:
            raise LostPoint("max_series")
        if track is not None and end <= track.end_ns and not track.is_set_back(now_ns):
            raise LostPoint("out_of_order")
        self._memory.set(series, Track(amount, start, end), now_ns)
        if track is None:
            return bool(start > self._began_ns)
        increase = track.increase(amount, start)
        since = track.end_ns if track.end_ns < end else start
        if increase is None:
            point.start_time_unix_nano = max(start, since)
        else:
            point.start_time_unix_nano = since
            increase.write(point)
        return True
