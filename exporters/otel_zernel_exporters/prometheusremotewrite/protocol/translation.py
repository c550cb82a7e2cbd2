"""The translation of OTLP metrics into entries: series with samples in the order of time.

The points of a metric from one origin are samples of their series. Servers without native histograms get the same
histograms in classic buckets.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    HistogramDataPoint,
    Metric,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)

from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_exporters.prometheusremotewrite.protocol import histograms
from otel_zernel_exporters.prometheusremotewrite.protocol import series as remote
from otel_zernel_libraries.histograms.restarts import begins_again
from otel_zernel_libraries.prometheus.families import TARGET_INFO
from otel_zernel_libraries.prometheus.formats.messages import exemplar_labels
from otel_zernel_libraries.prometheus.histograms import Bounds, BucketLayout
from otel_zernel_libraries.prometheus.labels import label_text
from otel_zernel_libraries.prometheus.names import Naming
from otel_zernel_libraries.prometheus.options import Options
from otel_zernel_libraries.prometheus.origin import Origin, target_info_labels
from otel_zernel_libraries.prometheus.series import MalformedPoint, exemplar_value
from otel_zernel_libraries.prometheus.stream import MetricStream, StreamKey, attributes_key, number_key, stream_key

_NS = 1_000_000
"""Ns in a ms."""
_MAX_KEYS = 100_000
"""The most keys stored for one stream. A sender that shuffles its attributes must not fill the memory."""

Kept = TypeVar("Kept")
Buckets = tuple[Bounds, list[int]]
"""Bounds and counts, shape (n + 1,)."""


class WrittenStream(Generic[Kept]):
    """The points of one metric from one origin. `Kept` is the state of the series of one point."""

    def __init__(self, stream: MetricStream, table: remote.SeriesTable) -> None:
        self.used = 0
        """The number of the newest batch that has it."""
        self._stream = stream
        self._table = table
        self._metadata = remote.FamilyMetadata(stream.name, stream.family_type, stream.help, stream.unit)
        self._known: dict[bytes, Kept] = {}
        """By the encoded attributes."""

    def write(self, writes: remote.Writes, points: Iterable[Any], first: int, now_ms: int) -> int:
        """Adds the points, with the numbers from `first` on. Returns how many are malformed.

        Points without a time get `now_ms`.
        """
        malformed = 0
        for number, point in enumerate(points, first):
            time_ms = point.time_unix_nano // _NS or now_ms
            try:
                self._write(writes, point, (time_ms, point.start_time_unix_nano // _NS, number))
            except MalformedPoint:
                malformed += 1
        return malformed

    def describe(self, description: str) -> None:
        """Takes the description of the metric, which may have changed."""
        if description and description != self._metadata.help:
            self._metadata = self._metadata._replace(help=description)
            self._known.clear()

    def forget(self) -> None:
        """Forgets all series. The next point finds them again in the table, or creates them."""
        self._known.clear()

    def _write(self, writes: remote.Writes, point: Any, sample: tuple[int, int, int]) -> None:
        """Adds a point. `sample` is its time in ms, its start in ms, and its number. Raises `MalformedPoint`."""
        raise NotImplementedError

    def _create(self, labels: Mapping[str, str]) -> Kept:
        """The state of a point with these labels."""
        raise NotImplementedError

    def _of(self, point: Any, key: bytes) -> Kept:
        kept = self._known.get(key)
        if kept is None:
            if len(self._known) >= _MAX_KEYS:
                self._known.clear()
            labels = self._stream.origin.labels(point.attributes, self._stream.series_type.own_label)
            kept = self._known[key] = self._create(labels)
        return kept

    def _parted(self, labels: Mapping[str, str], part: str) -> histograms.PartedSeries:
        return histograms.PartedSeries(self._stream.name, labels, self._metadata, self._table, part)


class NumberStream(WrittenStream[remote.WrittenSeries]):
    """Gauges and sums."""

    def write(self, writes: remote.Writes, points: Iterable[Any], first: int, now_ms: int) -> int:
        """The hot path: no attribute of a known series is parsed."""
        known, samples_of, batch = self._known, writes.samples, writes.batch
        counts = self._stream.family_type == "counter"
        for number, point in enumerate(points, first):
            key = number_key(point)
            series = known.get(key) or self._of(point, key)
            time_ms = point.time_unix_nano // _NS or now_ms
            double = point.as_double
            value = double or float(point.as_int) or double  # an unset field reads as 0; the double may be -0.0
            start_ms, exemplars = 0, remote.NONE
            if point.flags and has_no_value(point):
                value = remote.STALE
            elif counts:
                value, start_ms = remote.recorded(value), point.start_time_unix_nano // _NS
                exemplars = _exemplars(point.exemplars, time_ms) if point.exemplars else remote.NONE
            else:
                value = remote.recorded(value)
            sample = time_ms, value, start_ms, number, exemplars
            samples = samples_of.get(series)
            if samples is None:
                samples_of[series] = [sample]
                series.used = batch
            else:
                samples.append(sample)
        return 0

    def _create(self, labels: Mapping[str, str]) -> remote.WrittenSeries:
        return self._table.find(remote.sorted_pairs(self._stream.name, labels), self._metadata)


class SummaryStream(WrittenStream[histograms.PartedSeries]):
    """Summaries: quantiles, count and sum."""

    def _write(self, writes: remote.Writes, point: Any, sample: tuple[int, int, int]) -> None:
        series = self._of(point, attributes_key(point.attributes))
        if has_no_value(point):
            series.end(writes, sample)
        else:
            histograms.write_summary(series, writes, point, sample)

    def _create(self, labels: Mapping[str, str]) -> histograms.PartedSeries:
        return self._parted(labels, "quantile")


class ClassicStream(WrittenStream[histograms.PartedSeries]):
    """Histograms with explicit bounds, as classic buckets.

    Some senders choose other bounds for every point. From then on, all series of the metric have the bounds of a grid:
    a series for each bound that was ever used would fill the server.
    """

    def __init__(self, stream: MetricStream, table: remote.SeriesTable, grid: Bounds) -> None:
        super().__init__(stream, table)
        self._layout = BucketLayout(grid)
        self._newest: dict[histograms.PartedSeries, tuple[Bounds, int, int]] = {}
        """The bounds, the start and the time of the newest point, in ms."""

    def forget(self) -> None:
        super().forget()
        self._newest.clear()

    def _on_layout(self, series: histograms.PartedSeries, buckets: Buckets, time_ms: int, start_ms: int) -> Buckets:
        """The buckets, on the grid if the sender moves its bounds."""
        bounds, counts = buckets
        former, self._newest[series] = self._newest.get(series), (bounds, start_ms, time_ms)
        if former and former[0].values != bounds.values and not begins_again(start_ms, *former[1:]):
            self._layout.sender_moves = True
        grid = self._layout.grid
        return (grid, grid.moved(bounds, counts)) if self._layout.sender_moves else buckets

    def _write(self, writes: remote.Writes, point: Any, sample: tuple[int, int, int]) -> None:
        buckets = None if has_no_value(point) else histograms.explicit_buckets(point)
        series = self._of(point, attributes_key(point.attributes))
        if buckets is None:
            series.end(writes, sample)
        else:
            buckets = self._on_layout(series, buckets, *sample[:2])
            histograms.write_explicit(series, writes, point, *buckets, sample, _exemplars(point.exemplars, sample[0]))

    def _create(self, labels: Mapping[str, str]) -> histograms.PartedSeries:
        return self._parted(labels, "le")


class NativeStream(WrittenStream[remote.WrittenSeries]):
    """Exponential histograms, or those with explicit bounds in custom buckets, as native histograms."""

    def __init__(self, stream: MetricStream, table: remote.SeriesTable, grid: Bounds) -> None:
        """`grid` has the classic bounds of exponential histograms."""
        super().__init__(stream, table)
        self._grid = grid
        self._newest: dict[remote.WrittenSeries, tuple[int, int]] = {}
        """The start of counting and the time of the newest point, in ms."""
        self._coarse: set[remote.WrittenSeries] = set()
        """The series that have been written in classic buckets, since their native ones were too coarse."""

    def forget(self) -> None:
        super().forget()
        self._newest.clear()
        self._coarse.clear()

    def _write(self, writes: remote.Writes, point: Any, sample: tuple[int, int, int]) -> None:
        value = self._value(point)
        series = self._of(point, attributes_key(point.attributes))
        time_ms, start_ms, number = sample
        former, self._newest[series] = self._newest.get(series), (start_ms, time_ms)
        if former and former[0] and begins_again(start_ms, *former):
            value = replace(value, has_reset=True)
        exemplars = _exemplars(point.exemplars, time_ms)
        written = time_ms, value, start_ms, number, exemplars
        if value.schema is None:
            self._coarse.add(series)
        if value.schema is None or (series in self._coarse and remote.is_stale(value.total)):
            histograms.write_native_as_classic(series, writes, written)
        else:
            writes.add(series, written)

    def _value(self, point: Any) -> remote.WrittenHistogram:
        if has_no_value(point):
            return histograms.stale_histogram(self._grid)
        if isinstance(point, HistogramDataPoint):
            return histograms.custom_histogram(point)
        return histograms.exponential_histogram(point, self._grid)

    def _create(self, labels: Mapping[str, str]) -> remote.WrittenSeries:
        pairs = remote.sorted_pairs(self._stream.name, labels)
        series = self._table.find(pairs, self._metadata, native=True)
        if series.classic is None:
            series.classic = self._parted(labels, "le")
        return series


def _exemplars(exemplars: Iterable[Exemplar], time_ms: int) -> remote.Exemplars:
    """The exemplars in the order of time. Those without a time have the time of their point."""
    written = [
        remote.WrittenExemplar(
            exemplar.time_unix_nano // _NS or time_ms,
            remote.recorded(float(exemplar_value(exemplar))),
            tuple(text for pair in sorted(exemplar_labels(exemplar).items()) if pair[1] for text in pair),
        )
        for exemplar in exemplars
    ]
    return tuple(sorted(written))


def with_classic_histograms(entries: Iterable[remote.Entry], *, custom_only: bool) -> list[remote.Entry]:
    """The entries with classic buckets in place of native histograms.

    If `custom_only`, only in place of those with custom buckets, which protocol 1.0 does not have.
    """
    writes = remote.Writes(0)
    for series, samples in entries:
        for sample in samples:
            value = sample[1]
            is_kept = isinstance(value, float) or (custom_only and value.schema != histograms.CUSTOM_BUCKETS)
            if is_kept:
                writes.samples.setdefault(series, []).append(sample)
            else:
                histograms.write_native_as_classic(series, writes, sample)
    writes.put_in_order()
    return list(writes.samples.items())


_IDLE_BATCHES = 1000
"""Batches after which a series that none of them had is forgotten. Its next point costs a little more."""
_MOST_SERIES = 500_000
"""Series in memory, beyond which those are forgotten that the current batch does not have."""
_TARGET_METADATA = remote.FamilyMetadata(TARGET_INFO, "info", "Resource attributes other than job and instance.", "")


class _OriginState:
    """The streams of one resource and one scope."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.target = label_text(origin.target)
        self.streams: dict[StreamKey, WrittenStream[Any]] = {}
        self.used = 0
        """The number of the newest batch that has it."""
        self.time_ms = 0
        """The newest time in that batch, in ms."""

    def use(self, batch: int) -> None:
        """Notes that a batch has the origin."""
        if self.used != batch:
            self.used = batch
            self.time_ms = 0


class Translation:
    """The series of all batches, with the labels and metadata of each. Not for several threads at the same time.

    Points that cannot be written are counted by `drop(points, reason)`:

    - `bad_name`: the metric's name has no character that Prometheus allows
    - `no_temporality`: a sum or histogram without a temporality
    - `malformed`: bounds that do not ascend, a quantile outside 0 to 1, or an unknown scale
    - `collision`: two samples of a series have the same time, and the later one in the batch is written; or a native
      histogram has the labels of a number
    """

    def __init__(
        self, options: Options, drop: Callable[[int, str], None], *, target_info: bool, custom_buckets: bool
    ) -> None:
        """`custom_buckets` makes histograms with explicit bounds native ones, of schema -53."""
        self._options = options
        self._naming = Naming(options)
        self._drop = drop
        self._target_info = target_info
        self._custom_buckets = custom_buckets
        self._table = remote.SeriesTable()
        self._origins: dict[tuple[bytes, bytes, str], _OriginState] = {}
        self._targets: dict[str, remote.WrittenSeries] = {}
        """The `target_info` of each target."""
        self._target_times: dict[str, int] = {}
        """The time of the newest one, in ms."""
        self._infos: dict[str, dict[str, str]] | None = None
        """The labels of `target_info` by target; None if they may have changed."""

    def __len__(self) -> int:
        """The number of series in memory."""
        return len(self._table)

    def entries(self, metrics: MetricsData, now_ns: int) -> list[remote.Entry]:
        """The samples of a batch. Points without a time get `now_ns`."""
        self._table.batch += 1
        writes = remote.Writes(self._table.batch)
        now_ms, number = now_ns // 1_000_000, 0
        for resource in metrics.resource_metrics:
            encoded = resource.resource.SerializeToString()
            for scope in resource.scope_metrics:
                state = self._state(encoded, resource, scope)
                state.use(writes.batch)
                for metric in scope.metrics:
                    number += self._write_metric(state, metric, writes, number, now_ms)
        if self._target_info:
            self._write_target_info(writes)
        if writes.batch % _IDLE_BATCHES == 0:
            self._forget(before=writes.batch - _IDLE_BATCHES)
        elif len(self._table) > _MOST_SERIES:
            self._forget(before=writes.batch)
        if lost := writes.remove_twins(self._table) + writes.put_in_order():
            self._drop(lost, "collision")
        return list(writes.samples.items())

    def _state(self, encoded: bytes, resource: ResourceMetrics, scope: ScopeMetrics) -> _OriginState:
        key = (encoded, scope.scope.SerializeToString(), scope.schema_url)
        state = self._origins.get(key)
        if state is None:
            state = self._origins[key] = _OriginState(Origin(resource, scope, self._naming, self._options))
            self._infos = None
        return state

    def _write_metric(self, state: _OriginState, metric: Metric, writes: remote.Writes, first: int, now_ms: int) -> int:
        """The number of points of the metric."""
        kind = metric.WhichOneof("data")
        if kind is None:
            return 0
        data = getattr(metric, kind)
        count = len(data.data_points)
        if count:  # the points of a metric are of one reading
            state.time_ms = max(state.time_ms, data.data_points[-1].time_unix_nano // 1_000_000 or now_ms)
        key = stream_key(metric, kind, data)
        stream = state.streams.get(key)
        if stream is None:
            of = MetricStream.of(state.origin, metric, key, self._naming)
            if reason := "bad_name" if not of.name else "no_temporality" if of.unspecified else "":
                self._drop(count, reason)
                return count
            stream = state.streams[key] = self._stream(of, kind)
        stream.used = writes.batch
        stream.describe(metric.description.strip())
        if malformed := stream.write(writes, data.data_points, first, now_ms):
            self._drop(malformed, "malformed")
        return count

    def _stream(self, stream: MetricStream, kind: str) -> WrittenStream[Any]:
        if kind == "summary":
            return SummaryStream(stream, self._table)
        if not kind.endswith("histogram"):
            return NumberStream(stream, self._table)
        grid = self._options.bounds_of(stream.metric_name, stream.metric_unit)
        is_native = kind == "exponential_histogram" or self._custom_buckets
        return (NativeStream if is_native else ClassicStream)(stream, self._table, grid)

    def _write_target_info(self, writes: remote.Writes) -> None:
        """Adds a sample of `target_info` for each target of the batch. A target whose labels change ends the former."""
        times: dict[str, int] = {}
        for state in self._origins.values():
            if state.used == writes.batch and state.origin.target:
                times[state.target] = max(times.get(state.target, 0), state.time_ms)
        if self._infos is None:
            self._infos = target_info_labels([origin.origin for origin in self._origins.values()], target_labels=True)
        for target, time_ms in times.items():
            if time_ms > self._target_times.get(target, 0):
                self._target_times[target] = time_ms
                self._write_target(writes, target, time_ms)

    def _write_target(self, writes: remote.Writes, target: str, time_ms: int) -> None:
        labels, former = (self._infos or {}).get(target), self._targets.get(target)
        series = self._table.find(remote.sorted_pairs(TARGET_INFO, labels), _TARGET_METADATA) if labels else None
        if series:
            self._targets[target] = series
            writes.add(series, (time_ms, 1.0, 0, -1, ()))
        if former and former is not series:
            writes.add(former, (time_ms, remote.STALE, 0, -1, ()))

    def _forget(self, before: int) -> None:
        """Forgets the series and origins that no batch has had since the number `before`."""
        self._infos = None
        self._table.forget(before)
        for key, state in list(self._origins.items()):
            if state.used < before:
                del self._origins[key]
                continue
            for stream in state.streams.values():
                stream.forget()
        live = {target.labels for target in self._targets.values() if target.used >= before}
        self._targets = {target: series for target, series in self._targets.items() if series.labels in live}
        self._target_times = {target: at for target, at in self._target_times.items() if target in self._targets}
