"""The points of a metric from one origin, as samples of their series. Known series need no labels."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, HistogramDataPoint

from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_exporters.prometheusremotewrite.protocol.histograms import (
    PartedSeries,
    custom_histogram,
    explicit_buckets,
    exponential_histogram,
    stale_histogram,
    write_explicit,
    write_native_as_classic,
    write_summary,
)
from otel_zernel_exporters.prometheusremotewrite.protocol.series import (
    NONE,
    STALE,
    Exemplars,
    FamilyMetadata,
    SeriesTable,
    Writes,
    WrittenExemplar,
    WrittenHistogram,
    WrittenSeries,
    is_stale,
    recorded,
    sorted_pairs,
)
from otel_zernel_libraries.prometheus.formats.exemplars import exemplar_labels
from otel_zernel_libraries.prometheus.histograms import Bounds, BucketLayout
from otel_zernel_libraries.prometheus.series import MalformedPoint, exemplar_value
from otel_zernel_libraries.prometheus.stream import MetricStream, attributes_key, number_key

_NS = 1_000_000
"""Ns in a ms."""
_MAX_KEYS = 100_000
"""The most keys stored for one stream. A sender that shuffles its attributes must not fill the memory."""

Kept = TypeVar("Kept")
Buckets = tuple[Bounds, list[int]]
"""Bounds and counts, shape (n + 1,)."""


class WrittenStream(Generic[Kept]):
    """The points of one metric from one origin. `Kept` is the state of the series of one point."""

    def __init__(self, stream: MetricStream, table: SeriesTable) -> None:
        self.used = 0
        """The number of the newest batch that has it."""
        self._stream = stream
        self._table = table
        self._metadata = FamilyMetadata(stream.name, stream.family_type, stream.help, stream.unit)
        self._known: dict[bytes, Kept] = {}
        """By the encoded attributes."""

    def write(self, writes: Writes, points: Iterable[Any], first: int, now_ms: int) -> int:
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

    def _write(self, writes: Writes, point: Any, sample: tuple[int, int, int]) -> None:
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

    def _parted(self, labels: Mapping[str, str], part: str) -> PartedSeries:
        return PartedSeries(self._stream.name, labels, self._metadata, self._table, part)


class NumberStream(WrittenStream[WrittenSeries]):
    """Gauges and sums."""

    def write(self, writes: Writes, points: Iterable[Any], first: int, now_ms: int) -> int:
        """The hot path: no attribute of a known series is parsed."""
        known, samples_of, batch = self._known, writes.samples, writes.batch
        counts = self._stream.family_type == "counter"
        for number, point in enumerate(points, first):
            key = number_key(point)
            series = known.get(key) or self._of(point, key)
            time_ms = point.time_unix_nano // _NS or now_ms
            double = point.as_double
            value = double or float(point.as_int) or double  # an unset field reads as 0; the double may be -0.0
            start_ms, exemplars = 0, NONE
            if point.flags and has_no_value(point):
                value = STALE
            elif counts:
                value, start_ms = recorded(value), point.start_time_unix_nano // _NS
                exemplars = _exemplars(point.exemplars, time_ms) if point.exemplars else NONE
            else:
                value = recorded(value)
            sample = time_ms, value, start_ms, number, exemplars
            samples = samples_of.get(series)
            if samples is None:
                samples_of[series] = [sample]
                series.used = batch
            else:
                samples.append(sample)
        return 0

    def _create(self, labels: Mapping[str, str]) -> WrittenSeries:
        return self._table.find(sorted_pairs(self._stream.name, labels), self._metadata)


class SummaryStream(WrittenStream[PartedSeries]):
    """Summaries: quantiles, count and sum."""

    def _write(self, writes: Writes, point: Any, sample: tuple[int, int, int]) -> None:
        series = self._of(point, attributes_key(point.attributes))
        if has_no_value(point):
            series.end(writes, sample)
        else:
            write_summary(series, writes, point, sample)

    def _create(self, labels: Mapping[str, str]) -> PartedSeries:
        return self._parted(labels, "quantile")


class ClassicStream(WrittenStream[PartedSeries]):
    """Histograms with explicit bounds, as classic buckets.

    Some senders choose other bounds for every point. From then on, all series of the metric have the bounds of a grid:
    a series for each bound that was ever used would fill the server.
    """

    def __init__(self, stream: MetricStream, table: SeriesTable, grid: Bounds) -> None:
        super().__init__(stream, table)
        self._layout = BucketLayout(grid)
        self._newest: dict[PartedSeries, tuple[Bounds, int]] = {}
        """The bounds and the start of the newest point."""

    def forget(self) -> None:
        super().forget()
        self._newest.clear()

    def _on_layout(self, series: PartedSeries, buckets: Buckets, start_ms: int) -> Buckets:
        """The buckets, on the grid if the sender moves its bounds."""
        bounds, counts = buckets
        former, self._newest[series] = self._newest.get(series), (bounds, start_ms)
        if former and former[0].values != bounds.values and former[1] == start_ms:
            self._layout.sender_moves = True
        grid = self._layout.grid
        return (grid, grid.moved(bounds, counts)) if self._layout.sender_moves else buckets

    def _write(self, writes: Writes, point: Any, sample: tuple[int, int, int]) -> None:
        buckets = None if has_no_value(point) else explicit_buckets(point)
        series = self._of(point, attributes_key(point.attributes))
        if buckets is None:
            series.end(writes, sample)
        else:
            buckets = self._on_layout(series, buckets, sample[1])
            write_explicit(series, writes, point, *buckets, sample, _exemplars(point.exemplars, sample[0]))

    def _create(self, labels: Mapping[str, str]) -> PartedSeries:
        return self._parted(labels, "le")


class NativeStream(WrittenStream[WrittenSeries]):
    """Exponential histograms, or those with explicit bounds in custom buckets, as native histograms."""

    def __init__(self, stream: MetricStream, table: SeriesTable, grid: Bounds) -> None:
        """`grid` has the classic bounds of exponential histograms."""
        super().__init__(stream, table)
        self._grid = grid
        self._starts: dict[WrittenSeries, int] = {}
        """The start of counting of the newest point, in ms."""
        self._coarse: set[WrittenSeries] = set()
        """The series that have been written in classic buckets, since their native ones were too coarse."""

    def forget(self) -> None:
        super().forget()
        self._starts.clear()
        self._coarse.clear()

    def _write(self, writes: Writes, point: Any, sample: tuple[int, int, int]) -> None:
        value = self._value(point)
        series = self._of(point, attributes_key(point.attributes))
        time_ms, start_ms, number = sample
        former = self._starts.get(series, 0)
        self._starts[series] = start_ms
        if former and start_ms and former != start_ms:
            value = replace(value, has_reset=True)
        exemplars = _exemplars(point.exemplars, time_ms)
        written = time_ms, value, start_ms, number, exemplars
        if value.schema is None:
            self._coarse.add(series)
        if value.schema is None or (series in self._coarse and is_stale(value.total)):
            write_native_as_classic(series, writes, written)
        else:
            writes.add(series, written)

    def _value(self, point: Any) -> WrittenHistogram:
        if has_no_value(point):
            return stale_histogram(self._grid)
        if isinstance(point, HistogramDataPoint):
            return custom_histogram(point)
        return exponential_histogram(point, self._grid)

    def _create(self, labels: Mapping[str, str]) -> WrittenSeries:
        pairs = sorted_pairs(self._stream.name, labels)
        series = self._table.find(pairs, self._metadata, native=True)
        if series.classic is None:
            series.classic = self._parted(labels, "le")
        return series


def _exemplars(exemplars: Iterable[Exemplar], time_ms: int) -> Exemplars:
    """The exemplars in the order of time. Those without a time have the time of their point."""
    written = [
        WrittenExemplar(
            one.time_unix_nano // _NS or time_ms,
            recorded(float(exemplar_value(one))),
            tuple(text for pair in sorted(exemplar_labels(one).items()) if pair[1] for text in pair),
        )
        for one in exemplars
    ]
    return tuple(sorted(written))
