"""Encodes a scrape of one device as a batch."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from otel_zernel.batch import Batch
from otel_zernel.otlp import points as otlp
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel.protobuf import delimited
from otel_zernel_libraries.arrays import KnownSeries
from otel_zernel_receivers.nvml.points.histograms import DurationHistogram, SampleHistogram
from otel_zernel_receivers.nvml.points.metrics import METRICS
from otel_zernel_receivers.nvml.points.series import NvmlSeries

SCOPE = otlp.Scope("otel_zernel_receivers.nvml")
_TEMPLATES = 16  # sets of series remembered: they change when slow queries are skipped and processes come and go
_ORDER = {name: position for position, name in enumerate(METRICS)}


@dataclass(frozen=True, slots=True)
class Point:
    """A number and the start of its count, in ns since 1970 (0 if not known)."""

    value: float
    start_ns: int = 0


class Encoder:
    """Encodes the points of one device. Its resource and its series are encoded once."""

    def __init__(self, resource: otlp.Attributes, identity: otlp.Attributes) -> None:
        """`identity` are the attributes of every point."""
        self._resource = otlp.encode_resource(resource)
        self._identity = identity
        self._template = lru_cache(_TEMPLATES)(self._new_template)
        self._histogram_attributes = lru_cache(1024)(self._encode_histogram_attributes)

    def numbers(self, points: Mapping[NvmlSeries, Point], time_ns: int) -> Batch:
        """Number points, all with the time `time_ns`."""
        known, order = self._template(tuple(points))
        values = list(points.values())
        starts = np.array([values[position].start_ns for position in order], np.uint64)
        return known.batch([values[position].value for position in order], time_ns, starts)

    def ends(self, series: Iterable[NvmlSeries], time_ns: int) -> Batch:
        """Staleness points of series of numbers."""
        points: defaultdict[str, list[bytes]] = defaultdict(list)
        for of_series in series:
            attributes = otlp.encode_attributes(
                {**self._identity, **dict(of_series.attributes)}, otlp.NUMBER_ATTRIBUTES
            )
            points[of_series.metric].append(
                delimited(1, attributes + encode_staleness(METRICS[of_series.metric].kind, time_ns))
            )
        if not points:
            return Batch()
        metrics = [otlp.encode_metric(_descriptor(name), b"".join(of_metric)) for name, of_metric in points.items()]
        count = sum(map(len, points.values()))
        return Batch.encoded("metrics", otlp.encode_resource_metrics(self._resource, SCOPE, metrics), count)

    def histograms(
        self, counted: Iterable[tuple[NvmlSeries, SampleHistogram | DurationHistogram]], start_ns: int, time_ns: int
    ) -> Batch:
        """The values counted from `start_ns` to `time_ns`. The histograms then start again from 0."""
        period = otlp.Period(start_ns, time_ns)
        points = [
            (of_series.metric, histogram.flush(self._histogram_attributes(of_series), period))
            for of_series, histogram in counted
            if histogram
        ]
        if not points:
            return Batch()
        points.sort(key=lambda point: _ORDER[point[0]])
        metrics = [
            otlp.encode_metric(_descriptor(name), b"".join(point for _, point in group))
            for name, group in groupby(points, key=lambda point: point[0])
        ]
        return Batch.encoded("metrics", otlp.encode_resource_metrics(self._resource, SCOPE, metrics), len(points))

    def _new_template(self, series: Sequence[NvmlSeries]) -> tuple[KnownSeries, list[int]]:
        """The encoder of these series in the order of the metrics, and their positions in `series`."""
        order = sorted(range(len(series)), key=lambda position: _ORDER[series[position].metric])
        return KnownSeries([self._series(series[position]) for position in order]), order

    def _series(self, of_series: NvmlSeries) -> otlp.Series:
        assert METRICS[of_series.metric].kind != "histogram"  # noqa: S101  # `histograms` encodes those
        attributes = otlp.encode_attributes({**self._identity, **dict(of_series.attributes)}, otlp.NUMBER_ATTRIBUTES)
        return otlp.Series(self._resource, SCOPE, _descriptor(of_series.metric), attributes)

    def _encode_histogram_attributes(self, of_series: NvmlSeries) -> bytes:
        return otlp.encode_attributes({**self._identity, **dict(of_series.attributes)}, otlp.HISTOGRAM_ATTRIBUTES)


def _descriptor(name: str) -> otlp.Descriptor:
    metric = METRICS[name]
    temporality: otlp.Temporality = "delta" if metric.kind == "histogram" else "cumulative"
    return otlp.Descriptor(metric.name, metric.unit, metric.kind, metric.description, temporality)
