"""A scrape of one device becomes an encoded `MetricsData`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import (
    Attributes,
    Descriptor,
    KnownSeries,
    Scope,
    Series,
    encode_point_attributes,
    encode_resource,
    encode_resource_metrics,
)
from otel_zernel_receivers.nvml.points.histograms import (
    Distribution,
    Durations,
    encode_histogram,
    encode_histogram_attributes,
)
from otel_zernel_receivers.nvml.points.metrics import METRICS
from otel_zernel_receivers.nvml.points.series import NvmlSeries

SCOPE = Scope("otel_zernel_receivers.nvml")
_TEMPLATES = 16  # sets of series remembered: they change when slow queries are left out and processes come and go
_ORDER = {name: position for position, name in enumerate(METRICS)}


@dataclass(frozen=True, slots=True)
class Point:
    """A number, and since when it counts (ns since 1970, 0 for unknown)."""

    value: float
    start_ns: int = 0


class Encoder:
    """Encodes what one device says; its resource and its series are encoded once."""

    def __init__(self, resource: Attributes, uuid: str) -> None:
        self._resource = encode_resource(resource)
        self._id = {"hw.id": uuid}
        self._template = lru_cache(_TEMPLATES)(self._new_template)
        self._histogram_attributes = lru_cache(1024)(self._encode_histogram_attributes)

    def numbers(self, points: Mapping[NvmlSeries, Point], time_ns: int) -> Batch:
        """The points of now."""
        known, order = self._template(tuple(points))
        values = list(points.values())
        starts = np.array([values[position].start_ns for position in order], np.uint64)
        return known.batch([values[position].value for position in order], time_ns, starts)

    def histograms(
        self, counted: Iterable[tuple[NvmlSeries, Distribution | Durations]], start_ns: int, time_ns: int
    ) -> Batch:
        """What was counted from `start_ns` to `time_ns`; it counts from 0 again."""
        points = [
            (METRICS[stream.metric], one.take(self._histogram_attributes(stream), start_ns, time_ns))
            for stream, one in counted
            if one
        ]
        metrics = [
            encode_histogram(metric.name, metric.unit, metric.description, [point for _, point in group])
            for metric, group in groupby(sorted(points, key=lambda one: _ORDER[one[0].name]), key=lambda one: one[0])
        ]
        if not metrics:
            return Batch()
        return Batch.encoded(metrics=encode_resource_metrics(self._resource, SCOPE, metrics), point_count=len(points))

    def _new_template(self, streams: Sequence[NvmlSeries]) -> tuple[KnownSeries, list[int]]:
        order = sorted(range(len(streams)), key=lambda position: _ORDER[streams[position].metric])
        return KnownSeries([self._series(streams[position]) for position in order]), order

    def _series(self, stream: NvmlSeries) -> Series:
        metric = METRICS[stream.metric]
        assert metric.kind != "histogram"  # noqa: S101  # those come from `histograms`
        descriptor = Descriptor(metric.name, metric.unit, metric.kind, metric.description)
        attributes = encode_point_attributes({**self._id, **dict(stream.attributes)})
        return Series(self._resource, SCOPE, descriptor, attributes)

    def _encode_histogram_attributes(self, stream: NvmlSeries) -> bytes:
        return encode_histogram_attributes({**self._id, **dict(stream.attributes)})
