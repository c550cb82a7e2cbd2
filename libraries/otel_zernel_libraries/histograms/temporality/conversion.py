"""Converts the points of a batch from one temporality to the other, in place."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Generic

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from otel_zernel.batch import Batch, points
from otel_zernel.clock import Clock
from otel_zernel.errors import DecodeError
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_libraries.histograms.amounts import Amount, MalformedAmount
from otel_zernel_libraries.histograms.temporality.memory import (
    AnyTrack,
    SeriesMemory,
    SeriesMemoryConfig,
    StreamIdentity,
)
from otel_zernel_libraries.histograms.temporality.track import amount_of

_KINDS = frozenset({"sum", "histogram", "exponential_histogram"})


class LostPoint(Exception):
    """A point cannot be converted. The message is the reason, as `zernel.dropped_items` counts it."""


class Conversion(ABC, Generic[AnyTrack]):
    """Converts sums and histograms of the temporality `source` to `target`. Other metrics stay as they are."""

    source: ClassVar[int]
    target: ClassVar[int]
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

    def convert(self, batch: Batch, drop: Callable[[int, str], None]) -> Batch:
        """The batch, converted.

        `drop(count, reason)` counts lost points: `max_series`, `out_of_order` or `invalid`.
        """
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

    def limit(self, config: SeriesMemoryConfig) -> None:
        """Changes the limits of the memory."""
        self._memory.limit(config)

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
