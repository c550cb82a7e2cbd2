"""Encodes the counts of all series as OTLP: summaries and exponential histograms.

The changing fields of a summary point have a fixed width: numpy writes them for many points at once, and the
attributes of each series follow. Field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, SummaryDataPoint

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Descriptor, MetricKind, encode_metric
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel.protobuf import delimited
from otel_zernel_libraries.histograms.hdr import Floats, Ints
from otel_zernel_processors.percentiles.config import Output, PercentilesConfig
from otel_zernel_processors.percentiles.counts.exemplars import Exemplars
from otel_zernel_processors.percentiles.counts.exponential import ExponentialCounts, ExponentialTotals
from otel_zernel_processors.percentiles.counts.series import PercentileSeries, PercentileSeriesTable
from otel_zernel_processors.percentiles.counts.tally import SparseCounts
from otel_zernel_processors.percentiles.counts.window import WindowCounts

_KINDS: dict[Output, MetricKind] = {"histogram": "exponential_histogram", "summary": "summary"}
_ATTRIBUTES: dict[Output, int] = {
    "histogram": ExponentialHistogramDataPoint.ATTRIBUTES_FIELD_NUMBER,
    "summary": SummaryDataPoint.ATTRIBUTES_FIELD_NUMBER,
}
_NUMBERS = [
    *(("start_tag", "u1"), ("start", "<u8"), ("time_tag", "u1"), ("time", "<u8")),
    *(("count_tag", "u1"), ("count", "<u8"), ("sum_tag", "u1"), ("sum", "<f8")),
]
_QUANTILE = np.dtype([("tag", "V2"), ("q_tag", "u1"), ("quantile", "<f8"), ("v_tag", "u1"), ("value", "<f8")])


def summary_points(
    series: Sequence[PercentileSeries],
    time_ns: int,
    counts: Ints,
    sums: Floats,
    quantiles: Sequence[float],
    values: Floats,
) -> list[bytes]:
    """The encoded SummaryDataPoint of each series; `counts` and `sums` of shape (n,), `values` of (n, q)."""
    point = np.dtype([*_NUMBERS, ("quantiles", _QUANTILE, (len(quantiles),))])
    points = np.zeros(len(series), point)
    points["start_tag"], points["time_tag"], points["count_tag"], points["sum_tag"] = 0x11, 0x19, 0x21, 0x29
    points["start"] = [of_series.start_ns for of_series in series]
    points["time"], points["count"], points["sum"] = time_ns, counts, sums
    at = points["quantiles"]
    at["tag"], at["q_tag"], at["v_tag"] = np.void(bytes((0x32, _QUANTILE.itemsize - 2))), 0x09, 0x11
    at["quantile"], at["value"] = quantiles, values
    encoded, size = points.tobytes(), point.itemsize
    return [
        encoded[row * size : (row + 1) * size] + _attributes(of_series, "summary")
        for row, of_series in enumerate(series)
    ]


def staleness_points(series: Iterable[PercentileSeries], time_ns: int, output: Output) -> list[bytes]:
    """The encoded staleness point of each series."""
    without_attributes = encode_staleness(_KINDS[output], time_ns)
    return [without_attributes + _attributes(of_series, output) for of_series in series]


def exponential_point(
    series: PercentileSeries, time_ns: int, total: float, zero: float, counted: ExponentialCounts
) -> bytes:
    """An encoded ExponentialHistogramDataPoint of the values since the series' start.

    `total` is the sum of the values. Values up to `zero` are in the zero bucket.
    """
    point = ExponentialHistogramDataPoint(
        start_time_unix_nano=series.start_ns,
        time_unix_nano=time_ns,
        count=int(counted.counts.sum()) + counted.zeros,
        sum=total,
        scale=counted.scale,
        zero_count=counted.zeros,
        zero_threshold=zero,
    )
    if counted.lowest <= counted.highest:
        point.min, point.max = counted.lowest, counted.highest
    point.positive.offset = counted.offset
    point.positive.bucket_counts.extend(counted.counts.tolist())
    return point.SerializeToString() + _attributes(series, "histogram")


def _attributes(series: PercentileSeries, output: Output) -> bytes:
    field = _ATTRIBUTES[output]
    return b"".join(delimited(field, pair) for pair in series.attributes)


def encoded_exemplars(exemplars: Iterable[bytes]) -> bytes:
    """The exemplars of an ExponentialHistogramDataPoint, to be appended to its other fields."""
    return b"".join(delimited(ExponentialHistogramDataPoint.EXEMPLARS_FIELD_NUMBER, exemplar) for exemplar in exemplars)


def encode_metric_of(output: Output, name: str, sample: PercentileSeries, points: Iterable[bytes]) -> bytes:
    """An encoded Metric with these points: a cumulative histogram or a summary. `sample` is any of its series."""
    descriptor = Descriptor(name, sample.stream.unit, _KINDS[output], sample.stream.description)
    return encode_metric(descriptor, b"".join(delimited(1, point) for point in points))


def encode_batch(metrics: Iterable[tuple[PercentileSeries, bytes]], point_count: int) -> Batch:
    """A batch of encoded metrics, each with any of its series. Those of one resource and scope must stand together."""
    data = bytearray()
    for (resource, scope), group in groupby(metrics, lambda pair: (pair[0].stream.resource, pair[0].stream.scope)):
        body = delimited(1, scope) + b"".join(metric for _, metric in group)
        data += delimited(1, delimited(1, resource) + delimited(2, body))
    return Batch.encoded("metrics", bytes(data), point_count)


# Limits of one batch: merging and encoding it takes about 5 ms.
_SERIES = 256
_SERIES_WITH_HISTOGRAMS = 64
_COUNTERS = 200_000


class PercentilesReport:
    """Encodes the configured outputs."""

    def __init__(
        self,
        config: PercentilesConfig,
        table: PercentileSeriesTable,
        counts: WindowCounts,
        totals: ExponentialTotals | None,
        exemplars: Exemplars,
    ) -> None:
        """`totals` if the outputs include histograms."""
        self._table = table
        self._counts = counts
        self._totals = totals
        self._exemplars = exemplars
        self._quantiles = sorted({*config.quantiles, *((0.0, 1.0) if config.extremes else ())})
        self._config = config
        encoders = {"histogram": self._exponential_histograms, "summary": self._summaries}
        self._encoders = {output: encoders[output] for output in config.outputs}

    def batches(self, now_ns: int, step: SparseCounts) -> Iterator[Batch]:
        """The current points of every series, in batches of at most 256 series. `step`: the counts since the last."""
        slots = np.sort(np.fromiter(self._table.series, np.int64))
        most = _SERIES_WITH_HISTOGRAMS if "histogram" in self._encoders else _SERIES
        pieces = max(len(slots) // most, (self._counts.size() + len(step.keys)) // _COUNTERS) + 1
        for piece in np.array_split(slots, pieces):
            if len(piece):
                if self._totals:
                    self._totals.add(self._counts.of_slots(step, piece[0], piece[-1] + 1), self._table.per_unit)
                yield self._batch(piece, now_ns)

    def ends(self, ended: Iterable[PercentileSeries], now_ns: int) -> Iterator[Batch]:
        """Points without a recorded value for series that end, so that consumers drop them."""
        ordered = sorted(ended, key=_order)
        for start in range(0, len(ordered), _SERIES):
            yield self._ends(ordered[start : start + _SERIES], now_ns)

    def _ends(self, series: Sequence[PercentileSeries], now_ns: int) -> Batch:
        metrics: list[tuple[PercentileSeries, bytes]] = []
        for _, group in groupby(series, key=lambda series: series.stream):
            ended = list(group)
            points = {output: staleness_points(ended, now_ns, output) for output in self._encoders}
            metrics += [self._metric(output, ended[0], encoded) for output, encoded in points.items()]
        return encode_batch(metrics, len(series) * len(self._encoders))

    def _batch(self, slots: Ints, now_ns: int) -> Batch:
        series = [self._table.series[slot] for slot in slots.tolist()]
        points = {output: encode(slots, series, now_ns) for output, encode in self._encoders.items()}
        metrics: list[tuple[PercentileSeries, bytes]] = []
        order = sorted(range(len(series)), key=lambda row: _order(series[row]))
        for _, group in groupby(order, key=lambda row: series[row].stream):
            rows = list(group)
            sample = series[rows[0]]
            metrics += [self._metric(name, sample, [encoded[row] for row in rows]) for name, encoded in points.items()]
        return encode_batch(metrics, len(series) * len(points))

    def _metric(
        self, output: Output, sample: PercentileSeries, points: Iterable[bytes]
    ) -> tuple[PercentileSeries, bytes]:
        """The encoded metric of a stream, beside one of its series."""
        name = self._config.name_of(output, sample.stream.name, is_histogram=sample.stream.is_histogram)
        return sample, encode_metric_of(output, name, sample, points)

    def _summaries(self, slots: Ints, series: Sequence[PercentileSeries], now_ns: int) -> list[bytes]:
        counted = self._counts.in_window(int(slots[0]), int(slots[-1]) + 1)
        totals, units = self._counts.quantiles(counted, slots, self._quantiles)
        values = units / self._table.per_unit[slots, None]
        points: dict[int, bytes] = {}
        for some, quantiles in ((totals > 0, self._quantiles), (totals == 0, [])):
            rows = np.flatnonzero(some)
            chosen = [series[row] for row in rows.tolist()]
            counts, sums = self._table.count[slots[rows]], self._table.sum[slots[rows]]
            encoded = summary_points(chosen, now_ns, counts, sums, quantiles, values[rows][:, : len(quantiles)])
            points.update(zip(rows.tolist(), encoded, strict=True))
        return [points[row] for row in range(len(series))]

    def _exponential_histograms(self, slots: Ints, series: Sequence[PercentileSeries], now_ns: int) -> list[bytes]:
        points = []
        for slot, of_series in zip(slots.tolist(), series, strict=True):
            total, zero = float(self._table.sum[slot]), 0.5 / self._table.per_unit[slot]
            point = exponential_point(of_series, now_ns, total, zero, self._totals.of(slot)) if self._totals else b""
            points.append(point + encoded_exemplars(self._exemplars.pop(slot)))
        return points


def _order(series: PercentileSeries) -> tuple[bytes, bytes, str, str, bool]:
    stream = series.stream
    return stream.resource, stream.scope, stream.name, stream.unit, stream.is_histogram
