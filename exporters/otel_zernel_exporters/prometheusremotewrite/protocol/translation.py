"""The translation of OTLP metrics into entries: series with samples in the order of time."""

from collections.abc import Callable
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics

from otel_zernel_exporters.prometheusremotewrite.protocol.series import (
    STALE,
    Entry,
    FamilyMetadata,
    SeriesTable,
    Writes,
    WrittenSeries,
    sorted_pairs,
)
from otel_zernel_exporters.prometheusremotewrite.protocol.streams import (
    ClassicStream,
    NativeStream,
    NumberStream,
    SummaryStream,
    WrittenStream,
)
from otel_zernel_libraries.prometheus.families import TARGET_INFO
from otel_zernel_libraries.prometheus.labels import label_text
from otel_zernel_libraries.prometheus.names import Naming
from otel_zernel_libraries.prometheus.options import Options
from otel_zernel_libraries.prometheus.origin import Origin, target_info_labels
from otel_zernel_libraries.prometheus.stream import MetricStream, StreamKey, stream_key

_IDLE_BATCHES = 1000
"""Batches after which a series that none of them had is forgotten. Its next point costs a little more."""
_MOST_SERIES = 500_000
"""Series in memory, beyond which those are forgotten that the current batch does not have."""
_TARGET_METADATA = FamilyMetadata(TARGET_INFO, "info", "Resource attributes other than job and instance.", "")


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
            self.used, self.time_ms = batch, 0


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
        self._table = SeriesTable()
        self._origins: dict[tuple[bytes, bytes, str], _OriginState] = {}
        self._targets: dict[str, WrittenSeries] = {}
        """The `target_info` of each target."""
        self._target_times: dict[str, int] = {}
        """The time of the newest one, in ms."""
        self._infos: dict[str, dict[str, str]] | None = None
        """The labels of `target_info` by target; None if they may have changed."""

    def __len__(self) -> int:
        """The number of series in memory."""
        return len(self._table)

    def entries(self, metrics: MetricsData, now_ns: int) -> list[Entry]:
        """The samples of a batch. Points without a time get `now_ns`."""
        self._table.batch += 1
        writes = Writes(self._table.batch)
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

    def _write_metric(self, state: _OriginState, metric: Metric, writes: Writes, first: int, now_ms: int) -> int:
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
            found = MetricStream.of(state.origin, metric, key, self._naming)
            if reason := "bad_name" if not found.name else "no_temporality" if found.unspecified else "":
                self._drop(count, reason)
                return count
            stream = state.streams[key] = self._stream(found, kind)
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

    def _write_target_info(self, writes: Writes) -> None:
        """Adds a sample of `target_info` for each target of the batch. A target whose labels change ends the former."""
        times: dict[str, int] = {}
        for state in self._origins.values():
            if state.used == writes.batch and state.origin.target:
                times[state.target] = max(times.get(state.target, 0), state.time_ms)
        if self._infos is None:
            self._infos = target_info_labels([one.origin for one in self._origins.values()], target_labels=True)
        for target, time_ms in times.items():
            if time_ms > self._target_times.get(target, 0):
                self._target_times[target] = time_ms
                self._write_target(writes, target, time_ms)

    def _write_target(self, writes: Writes, target: str, time_ms: int) -> None:
        labels, former = (self._infos or {}).get(target), self._targets.get(target)
        series = self._table.find(sorted_pairs(TARGET_INFO, labels), _TARGET_METADATA) if labels else None
        if series:
            self._targets[target] = series
            writes.add(series, (time_ms, 1.0, 0, -1, ()))
        if former and former is not series:
            writes.add(former, (time_ms, STALE, 0, -1, ()))

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
        live = {one.labels for one in self._targets.values() if one.used >= before}
        self._targets = {target: one for target, one in self._targets.items() if one.labels in live}
        self._target_times = {target: at for target, at in self._target_times.items() if target in self._targets}
