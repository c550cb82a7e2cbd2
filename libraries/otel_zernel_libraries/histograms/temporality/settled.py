"""Gives histograms whose bounds differ from point to point a form that every backend adds up rightly.

`ebpf` and `phases` mark such metrics. A metric without the mark changes its form when a series has had other bounds.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Literal

from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, Metric

from otel_zernel.batch import EXPLICIT_HISTOGRAMS, Batch
from otel_zernel.clock import Clock
from otel_zernel.component import Context
from otel_zernel.otlp.points import forget_moving_bounds, has_moving_bounds
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_libraries.histograms.amounts import Amount, MalformedAmount
from otel_zernel_libraries.histograms.explicit import ExplicitAmount, bounds_of
from otel_zernel_libraries.histograms.exponential import exponential_of
from otel_zernel_libraries.histograms.temporality.conversion import CUMULATIVE, Converter, LostPoint, remove_empty
from otel_zernel_libraries.histograms.temporality.memory import (
    MovingBounds,
    SeriesMemoryConfig,
    StreamIdentity,
)
from otel_zernel_libraries.histograms.temporality.track import Track


class MovingMetric:
    """Stands for a metric whose bounds have moved."""

    __slots__ = ("updated_ns", "weight")

    def __init__(self) -> None:
        self.weight = 1
        self.updated_ns = 0


class WatchedSeries:
    """The newest point of a series whose bounds have not moved so far."""

    __slots__ = ("_bounds", "_encoded", "_start_ns", "end_ns", "updated_ns", "weight")

    def __init__(self, point: HistogramDataPoint, *, is_cumulative: bool) -> None:
        """Raises `MalformedAmount`."""
        self._bounds = blake2b(bounds_of(point), digest_size=16).digest()
        self._start_ns = point.start_time_unix_nano
        self.end_ns = point.time_unix_nano
        self._encoded = point.SerializeToString() if is_cumulative else b""
        """Only a cumulative series needs its counts again."""
        self.weight = 1 + len(self._encoded) // 8
        self.updated_ns = 0

    def moves_to(self, later: "WatchedSeries") -> bool:
        """Whether the bounds of the next point differ, and that is not because its sender began again."""
        if self._bounds == later._bounds:
            return False
        if not self._encoded or not 0 < self._start_ns < later._start_ns:
            return True
        return self.track().increase(later.track().amount, later._start_ns) is not None

    def track(self) -> Track:
        """The amount of the point, of a cumulative series."""
        point = HistogramDataPoint.FromString(self._encoded)
        return Track(ExplicitAmount.of(point, monotonic=True), self._start_ns, self.end_ns)


class SettledTrack(Track):
    """A cumulative series whose bounds move, and its total in the new form."""

    __slots__ = ("total", "total_start_ns")

    def __init__(self, amount: Amount, start_ns: int, end_ns: int, total: Amount, total_start_ns: int) -> None:
        super().__init__(amount, start_ns, end_ns)
        self.weight += total.weight
        self.total = total
        self.total_start_ns = total_start_ns


Grid = Callable[[str, str], Sequence[float]]
"""The fixed bounds of a metric, by its name and its unit."""


class SettledBounds(Converter[Any]):
    """Replaces moving bounds in the histograms of batches. Histograms whose bounds stay are not touched.

    Remembers a track or `WatchedSeries` by series, and `MovingMetric` by metric.
    """

    source = EXPLICIT_HISTOGRAMS
    counts_dropped = True

    def __init__(
        self, form: Literal["exponential", "fixed"], grid: Grid, config: SeriesMemoryConfig, clock: Clock
    ) -> None:
        super().__init__(config, clock)
        self.form = form
        self._grid = grid

    def convert(self, batch: Batch, drop: Callable[[int, str], None]) -> Batch:
        now_ns = self._clock.time_ns()
        self._memory.expire(now_ns)
        explicit = _explicit(batch.metrics.resource_metrics)
        if moving := {place for place, stream, metric in explicit if self._moves(stream, metric, now_ns)}:
            self._edit(batch, moving, drop, now_ns)
        return batch

    def _edit(
        self, batch: Batch, moving: set[tuple[int, int, int]], drop: Callable[[int, str], None], now_ns: int
    ) -> None:
        lost: Counter[str] = Counter()
        resources = batch.edit_metrics().resource_metrics
        for place, stream, metric in list(_explicit(resources)):
            if place in moving:
                self._settle(stream, metric, now_ns, lost)
        for resource in resources:
            for scope in resource.scope_metrics:
                remove_empty(scope.metrics)
        for reason, count in lost.items():
            drop(count, reason)

    def _moves(self, stream: StreamIdentity, metric: Metric, now_ns: int) -> bool:
        """Whether the bounds of a metric move. If not, remembers those of its series."""
        if has_moving_bounds(metric):
            return True
        known = self._memory.get(stream.digest)
        if known is not None:
            self._memory.set(stream.digest, known, now_ns)
            return True
        watched: dict[bytes, WatchedSeries] = {}
        is_cumulative = metric.histogram.aggregation_temporality == CUMULATIVE
        for point in metric.histogram.data_points:
            if not point.bucket_counts or has_no_value(point):
                continue
            try:
                track = WatchedSeries(point, is_cumulative=is_cumulative)
            except MalformedAmount:  # the backend reports it
                continue
            series = stream.of(point.attributes)
            before = watched.get(series) or self._memory.get(series)
            if isinstance(before, WatchedSeries) and before.moves_to(track):
                self._memory.set(stream.digest, MovingMetric(), now_ns)
                return True
            watched[series] = track
        for series, track in watched.items():
            if self._memory.get(series) is not None or not self._memory.is_full:
                self._memory.set(series, track, now_ns)
        return False

    def _settle(self, stream: StreamIdentity, metric: Metric, now_ns: int, lost: Counter[str]) -> None:
        """Replaces the points of the metric."""
        former = Metric()
        former.CopyFrom(metric)
        forget_moving_bounds(metric)
        is_cumulative = former.histogram.aggregation_temporality == CUMULATIVE
        data = metric.exponential_histogram if self.form == "exponential" else metric.histogram
        data.Clear()
        data.SetInParent()
        data.aggregation_temporality = former.histogram.aggregation_temporality
        settle = exponential_of if self.form == "exponential" else _OnGrid(self._grid(metric.name, metric.unit))
        for point in former.histogram.data_points:
            try:
                settled = self._settled(stream, point, settle, now_ns, is_cumulative=is_cumulative)
            except LostPoint as reason:
                lost[str(reason)] += 1
            else:
                _copy(point, data.data_points.add(), settled)

    def _settled(
        self,
        stream: StreamIdentity,
        point: HistogramDataPoint,
        settle: Callable[[Any], Amount],
        now_ns: int,
        *,
        is_cumulative: bool,
    ) -> tuple[Amount | None, int]:
        """The amount of the new point, None at the end of a series, and its start."""
        start = point.start_time_unix_nano
        try:
            amount = None if has_no_value(point) else ExplicitAmount.of(point, monotonic=True)
        except (MalformedAmount, OverflowError):
            raise LostPoint("invalid") from None
        if amount is not None and not is_cumulative:
            return settle(amount), start
        series = stream.of(point.attributes)
        if amount is None:
            self._memory.end(series)
            return None, start
        before = self._memory.get(series)
        if isinstance(before, WatchedSeries):
            before = before.track()
            self._memory.set(series, before, now_ns)
        track = self._following(before if isinstance(before, Track) else None, point, amount, settle, now_ns)
        self._memory.set(series, track, now_ns)
        return track.total, track.total_start_ns

    def _following(
        self,
        before: Track | None,
        point: HistogramDataPoint,
        amount: ExplicitAmount,
        settle: Callable[[Any], Amount],
        now_ns: int,
    ) -> SettledTrack:
        """The track of a cumulative series after its next point."""
        start, end = point.start_time_unix_nano, point.time_unix_nano
        if before is None:
            if self._memory.is_full:
                raise LostPoint("max_series")
            return SettledTrack(amount, start, end, settle(amount), start)
        if end <= before.end_ns and not before.is_set_back(now_ns):
            raise LostPoint("out_of_order")
        increase = before.increase(amount, start)
        if increase is None:  # the sender began again
            return SettledTrack(amount, start, end, settle(amount), start or before.end_ns)
        # The extremes of all values are limits for the new ones, whose own are not known.
        added = settle(increase.within(amount) if isinstance(increase, ExplicitAmount) else increase)
        if isinstance(before, SettledTrack):
            former, since = before.total, before.total_start_ns
        elif self.form == "fixed":  # the series stays the same: its counts must not decrease
            former, since = settle(before.amount), before.start_ns
        else:  # another series, which begins after the points with explicit bounds
            return SettledTrack(amount, start, end, added, before.end_ns)
        total = former.plus(added)
        if total is None:  # too large for a point: it begins again
            return SettledTrack(amount, start, end, added, before.end_ns)
        return SettledTrack(amount, start, end, total, since)


class _OnGrid:
    """Moves amounts to fixed bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds

    def __call__(self, amount: ExplicitAmount) -> Amount:
        return amount.at(self._bounds)


def _copy(point: HistogramDataPoint, added: Any, settled: tuple[Amount | None, int]) -> None:
    amount, start = settled
    added.attributes.extend(point.attributes)
    added.exemplars.extend(point.exemplars)
    added.flags = point.flags
    added.start_time_unix_nano, added.time_unix_nano = start, point.time_unix_nano
    if amount is not None:
        amount.write(added)


Place = tuple[int, int, int]
"""The positions of a resource, a scope and a metric."""


def _explicit(resources: Iterable[Any]) -> Iterator[tuple[Place, StreamIdentity, Metric]]:
    """The metrics with explicit bounds."""
    for first, resource in enumerate(resources):
        encoded_resource = b""
        for second, scope in enumerate(resource.scope_metrics):
            encoded_scope = b""
            for third, metric in enumerate(scope.metrics):
                if metric.HasField("histogram"):
                    encoded_resource = encoded_resource or resource.resource.SerializeToString()
                    encoded_scope = encoded_scope or scope.scope.SerializeToString()
                    stream = StreamIdentity(encoded_resource, encoded_scope, metric, "histogram", monotonic=True)
                    yield (first, second, third), stream, metric


def settled_bounds(
    wanted: MovingBounds, grid: Grid, config: SeriesMemoryConfig, context: Context
) -> SettledBounds | None:
    """The conversion to the wanted form; that of the former instance after a reload, if it has the same form."""
    if wanted == "as_is":
        return None
    kept = context.kept.get("settled_bounds")
    settled = (
        kept
        if isinstance(kept, SettledBounds) and kept.form == wanted
        else SettledBounds(wanted, grid, config, context.clock)
    )
    settled.limit(config)
    context.kept["settled_bounds"] = settled
    return settled
