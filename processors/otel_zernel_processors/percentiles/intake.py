"""Counts the points of metrics in the histograms of their series."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    ExponentialHistogram,
    Histogram,
    Metric,
    NumberDataPoint,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.component import Context
from otel_zernel.otlp.histograms import Floats, HdrLayout, Ints
from otel_zernel.otlp.points import delimited
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_processors.percentiles.config import PercentilesConfig
from otel_zernel_processors.percentiles.cumulative import Differences
from otel_zernel_processors.percentiles.distribution import Distribution, HistogramPoint, ranges, spread
from otel_zernel_processors.percentiles.exemplars import Exemplars
from otel_zernel_processors.percentiles.number_points import number_runs
from otel_zernel_processors.percentiles.series import SeriesTable, Stream, encode_attributes
from otel_zernel_processors.percentiles.window import Counts

_NOWHERE = -1  # the slot of points that say they have no value
_KNOWN = 4  # forms of metrics and points remembered, for each series there may be

# A run of number points is one piece of work, about 10 us if its series is new; a histogram point is some, more if it
# has many buckets. After so many, about 5 ms, others get their turn.
_PIECES = 500
_HISTOGRAM, _BUCKETS = 3, 64

MetricKey = tuple[bytes, bytes, str, str]
"""Encoded resource, encoded scope, name and unit of a metric as it comes."""


class Intake:
    """Collects what a batch says about each series, and counts all of it at once."""

    def __init__(
        self,
        config: PercentilesConfig,
        context: Context,
        table: SeriesTable,
        counts: Counts,
        exemplars: Exemplars | None = None,
    ) -> None:
        self._context = context
        self._exemplars = exemplars
        self._table = table
        self._counts = counts
        self._layout = HdrLayout(significant_figures=config.significant_figures)
        self._kept = None if config.group_by is None else frozenset(config.group_by)
        self._clamped = context.meter.create_counter(
            "zernel.percentiles.clamped", "{value}", "Values above max_value, counted as max_value."
        )
        self._differences = Differences(config.max_series)
        self._known: dict[MetricKey, tuple[Stream, dict[bytes, int]]] = {}
        self._known_size = 0
        self._max_known = _KNOWN * config.max_series
        self._lost: Counter[str] = Counter()
        self._slots: list[int] = []
        self._runs: list[int] = []
        self._doubles = bytearray()
        self._spans: list[tuple[int, Distribution]] = []
        self._pieces = 0

    def take(self, resource: bytes, scope: bytes, metric: Metric, now_ns: int) -> Iterator[None]:
        """Collects the points of a gauge, sum or histogram; stops whenever it is time for `count`."""
        key = resource, scope, metric.name, metric.unit
        known = self._known.get(key) or self._meet(key, metric.description)
        match metric.WhichOneof("data"):
            case "gauge":
                yield from self._take_numbers(*known, metric.gauge.SerializeToString(), now_ns)
            case "sum":
                yield from self._take_numbers(*known, metric.sum.SerializeToString(), now_ns)
            case "histogram":
                yield from self._take_histogram(key, known[0], metric.histogram, now_ns)
            case "exponential_histogram":
                yield from self._take_histogram(key, known[0], metric.exponential_histogram, now_ns)

    def expire(self, before_ns: int, slots_gone: bool) -> None:
        """Forgets cumulative series last seen before, and which points belong to which slot if any slot is free now."""
        self._differences.expire(before_ns)
        if slots_gone:
            self._known.clear()
            self._known_size = 0

    def _meet(self, key: MetricKey, description: str) -> tuple[Stream, dict[bytes, int]]:
        self._make_room()
        resource, scope, name, unit = key
        attributes = encode_attributes(Resource.FromString(resource).attributes, self._kept)
        encoded = b"".join(delimited(1, pair) for pair in attributes)
        known = self._known[key] = Stream(encoded, scope, name, unit, description), {}
        return known

    def _make_room(self) -> None:
        self._known_size += 1
        if self._known_size > self._max_known:
            self._known.clear()
            self._known_size = 1

    def _take_numbers(self, stream: Stream, slots: dict[bytes, int], encoded: bytes, now_ns: int) -> Iterator[None]:
        for rest, doubles in number_runs(encoded):
            slot = slots.get(rest)
            if slot is None:
                slot = self._find(stream, slots, rest, now_ns)
            if slot is None:
                self._lost["max_series"] += len(doubles) // 8
            elif slot != _NOWHERE:
                self._slots.append(slot)
                self._runs.append(len(doubles) // 8)
                self._doubles += doubles
            self._pieces += 1
            if self._pieces >= _PIECES:
                yield

    def _find(self, stream: Stream, slots: dict[bytes, int], rest: bytes, now_ns: int) -> int | None:
        point = NumberDataPoint.FromString(rest)
        if has_no_value(point):
            self._end(stream, point.attributes, now_ns)
            return _NOWHERE
        slot = self._table.slot(stream, encode_attributes(point.attributes, self._kept), now_ns)
        if slot is not None:
            self._make_room()
            slots[rest] = slot
        return slot

    def _take_histogram(
        self, key: MetricKey, stream: Stream, histogram: Histogram | ExponentialHistogram, now_ns: int
    ) -> Iterator[None]:
        temporality = histogram.aggregation_temporality
        if temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_UNSPECIFIED:
            self._lost["temporality"] += len(histogram.data_points)
            return
        cumulative = key if temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE else None
        for point in histogram.data_points:
            if has_no_value(point):
                self._differences.end((key, encode_attributes(point.attributes, None)))
                self._end(stream, point.attributes, now_ns)
                self._pieces += 1
            elif reason := self._take_distribution(cumulative, stream, point, now_ns):
                self._lost[reason] += 1
            if self._pieces >= _PIECES:
                yield

    def _end(self, stream: Stream, attributes: Sequence[KeyValue], now_ns: int) -> None:
        """Notes the end of a series. Where attributes are left out, others may be counted in it too: it goes on."""
        if self._kept is None:
            self._table.end(stream, encode_attributes(attributes, None), now_ns)

    def _take_distribution(
        self, cumulative: MetricKey | None, stream: Stream, point: HistogramPoint, now_ns: int
    ) -> str | None:
        """Collects one histogram point, or says why not."""
        try:
            distribution: Distribution | None = Distribution.of(point)
        except (ValueError, OverflowError):
            return "invalid"
        if cumulative is not None and distribution is not None:
            series = cumulative, encode_attributes(point.attributes, None)
            distribution = self._differences.added(series, distribution, point.start_time_unix_nano, now_ns)
        slot = self._table.slot(stream, encode_attributes(point.attributes, self._kept), now_ns)
        if slot is None or distribution is None:
            return "max_series"
        self._spans.append((slot, distribution))
        if self._exemplars is not None and point.exemplars:
            self._exemplars.keep(slot, point.exemplars)
        self._pieces += _HISTOGRAM + len(distribution.buckets.keys) // _BUCKETS
        return None

    def count(self, now_ns: int) -> bool:
        """Counts all that was collected; whether that was anything."""
        slots, runs, doubles, spans = self._slots, self._runs, self._doubles, self._spans
        self._slots, self._runs, self._doubles, self._spans, self._pieces = [], [], bytearray(), [], 0
        if slots:
            slots_of_values = np.repeat(np.array(slots, np.int64), runs)
            self._count_values(slots_of_values, np.frombuffer(bytes(doubles), "<f8"), now_ns)
        if spans:
            self._count_distributions(spans, now_ns)
        for reason, lost in (+self._lost).items():
            self._context.drop(lost, reason)
        self._lost.clear()
        return bool(slots or spans)

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

    def _count_distributions(self, spans: Sequence[tuple[int, Distribution]], now_ns: int) -> None:
        slots, distributions = np.array([slot for slot, _ in spans]), [one for _, one in spans]
        per_unit = self._table.per_unit[slots]
        first, last = ranges(distributions, per_unit)
        counts = np.concatenate([one.buckets.counts for one in distributions])
        which = np.repeat(np.arange(len(spans)), [len(one.buckets.keys) for one in distributions])
        bucket, units, times = spread(self._layout, first, last, counts)
        slots_of_values = slots[which[bucket]]
        limit = self._table.limit[slots_of_values].astype(np.int64)
        if (units > limit).any():
            self._clamped.add(int(times[units > limit].sum()))
        self._add(slots_of_values, np.minimum(units, limit), times, now_ns)
        middles = np.bincount(which, (first / 2 + last / 2) * counts, len(spans)) / per_unit
        sums = [middle if one.sum is None else one.sum for one, middle in zip(distributions, middles, strict=True)]
        np.add.at(self._table.sum, slots, sums)
        self._lost["negative"] += sum(one.negative for one in distributions)

    def _add(self, slots: Ints, units: Ints, times: Ints | None, now_ns: int) -> None:
        self._counts.add(slots, units, times)
        np.add.at(self._table.count, slots, 1 if times is None else times)
        self._table.last_ns[slots] = now_ns
