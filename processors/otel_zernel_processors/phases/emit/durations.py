"""`zernel.step.duration`: a delta histogram with the bounds of HDR counters, so that its percentiles are exact."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, Metric, ScopeMetrics

from otel_zernel.otlp.points import HISTOGRAM_ATTRIBUTES, Descriptor, Period, encode_attributes, encode_metric
from otel_zernel_libraries.histograms.hdr import HdrLayout, encode_buckets, encode_histogram_point, hdr_buckets
from otel_zernel_libraries.histograms.resolution import LARGEST
from otel_zernel_libraries.training import semconv
from otel_zernel_processors.phases.emit.declared import METRICS
from otel_zernel_processors.phases.emit.metrics import Labels
from otel_zernel_processors.phases.emit.traces import TraceCandidate

_DESCRIPTOR = Descriptor(
    semconv.STEP_DURATION,
    "s",
    "histogram",
    METRICS[semconv.STEP_DURATION].description,
    temporality="delta",
    moving_bounds=True,
)
_LAYOUT = HdrLayout(significant_figures=3)
_NS = 1e9  # nanoseconds to the second


@dataclass(slots=True)
class StepHistogram:
    """Counts durations by their HDR counters."""

    counts: Counter[int] = field(default_factory=Counter)
    sum_ns: int = 0
    min_ns: int = 2**63
    max_ns: int = 0

    def add(self, duration_ns: int, count: int = 1) -> None:
        """Counts a duration, so many times."""
        self.counts[_LAYOUT.index_of(min(duration_ns, LARGEST))] += count
        self.sum_ns += count * duration_ns
        self.min_ns = min(self.min_ns, duration_ns)
        self.max_ns = max(self.max_ns, duration_ns)

    def encode(self, attributes: Labels, period: Period) -> bytes:
        """One of the `data_points` of the metric, in s. Only used counters have a bucket."""
        index = sorted(self.counts)
        counts = np.array([self.counts[duration] for duration in index])
        [buckets] = hdr_buckets(_LAYOUT, [np.array(index)], [counts], _NS)
        return encode_histogram_point(
            encode_attributes(attributes, HISTOGRAM_ATTRIBUTES),
            period,
            encode_buckets(*buckets),
            self.counts.total(),
            self.sum_ns / _NS,
            lowest=self.min_ns / _NS,
            highest=self.max_ns / _NS,
        )


class StepDurations:
    """The durations of the steps in one interval, by kind of step, and by whether events were lost in them."""

    def __init__(self) -> None:
        self._histograms: defaultdict[tuple[str, bool], StepHistogram] = defaultdict(StepHistogram)

    def add(self, kind: str, duration_ns: int, count: int = 1, *, is_lossy: bool = False) -> None:
        """Counts so many steps. `is_lossy`: whether events were lost in them."""
        self._histograms[kind, is_lossy].add(duration_ns, count)

    def metric(self, traced: Iterable[TraceCandidate], common: Labels, start_ns: int, now_ns: int) -> Metric:
        """The metric. Its exemplars are the steps with a trace. `common` are attributes of every point."""
        exemplars: defaultdict[tuple[str, bool], list[Exemplar]] = defaultdict(list)
        for candidate in traced:
            exemplars[candidate.closed.step.kind, candidate.closed.step.lossy].append(_exemplar(candidate))
        keys, period = sorted(self._histograms), Period(start_ns, now_ns)
        points = [self._histograms[key].encode({**common, **_labels_of(*key)}, period) for key in keys]
        metric = ScopeMetrics.FromString(encode_metric(_DESCRIPTOR, b"".join(points))).metrics[0]
        for key, point in zip(keys, metric.histogram.data_points, strict=True):
            point.exemplars.extend(exemplars[key])
        return metric


def _labels_of(kind: str, is_lossy: bool) -> Labels:
    return {semconv.STEP_KIND: kind, semconv.STEP_LOSSY: True} if is_lossy else {semconv.STEP_KIND: kind}


def _exemplar(candidate: TraceCandidate) -> Exemplar:
    return Exemplar(
        time_unix_nano=candidate.closed.step.end,
        as_double=candidate.duration_ns / _NS,
        trace_id=candidate.trace_id,
        span_id=candidate.span_id,
    )
