"""`zernel.step.duration`: a delta histogram with the bounds of an HDR histogram, so that its percentiles are exact."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Exemplar, HistogramDataPoint, Metric

from otel_zernel.otlp.points import key_values
from otel_zernel_processors.phases.emit.metrics import Labels
from otel_zernel_processors.phases.emit.traces import TraceCandidate

_MAGNITUDE = 10
"""log2 of the number of buckets per power of two: three significant digits, as in an HDR histogram."""


@dataclass(slots=True)
class StepHistogram:
    """Counts of durations by bucket: the smallest and the largest value (ns) of the bucket."""

    counts: Counter[tuple[int, int]] = field(default_factory=Counter)
    sum_ns: int = 0
    min_ns: int = 2**63
    max_ns: int = 0

    def add(self, duration_ns: int) -> None:
        """Counts one duration."""
        self.counts[bucket_of(duration_ns)] += 1
        self.sum_ns += duration_ns
        self.min_ns = min(self.min_ns, duration_ns)
        self.max_ns = max(self.max_ns, duration_ns)

    def point(self) -> HistogramDataPoint:
        """The histogram as a point, in s. Empty buckets are left out."""
        bounds = sorted({bound for lowest, highest in self.counts for bound in (lowest - 1, highest)})
        by_highest = {highest: count for (_, highest), count in self.counts.items()}
        return HistogramDataPoint(
            count=self.counts.total(),
            sum=self.sum_ns / 1e9,
            min=self.min_ns / 1e9,
            max=self.max_ns / 1e9,
            explicit_bounds=[bound / 1e9 for bound in bounds],
            bucket_counts=[*(by_highest.get(bound, 0) for bound in bounds), 0],
        )


def bucket_of(value_ns: int) -> tuple[int, int]:
    """The smallest and the largest value (ns) in the value's bucket of an HDR histogram."""
    shift = max(value_ns.bit_length() - 1 - _MAGNITUDE, 0)
    lowest = value_ns >> shift << shift
    return lowest, lowest + (1 << shift) - 1


class StepDurations:
    """The durations of the steps in one interval, by kind of step."""

    def __init__(self) -> None:
        self._histograms: defaultdict[str, StepHistogram] = defaultdict(StepHistogram)

    def add(self, kind: str, duration_ns: int) -> None:
        """Counts a step."""
        self._histograms[kind].add(duration_ns)

    def metric(self, traced: Iterable[TraceCandidate], common: Labels, start_ns: int, now_ns: int) -> Metric:
        """The metric. The steps with a trace are its exemplars."""
        exemplars: defaultdict[str, list[Exemplar]] = defaultdict(list)
        for candidate in traced:
            exemplars[candidate.closed.step.kind].append(_exemplar(candidate))
        metric = Metric(name="zernel.step.duration", unit="s")
        metric.histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        for kind, histogram in sorted(self._histograms.items()):
            point = histogram.point()
            point.attributes.extend(key_values({**common, "zernel.step.kind": kind}))
            point.start_time_unix_nano, point.time_unix_nano = start_ns, now_ns
            point.exemplars.extend(exemplars[kind])
            metric.histogram.data_points.append(point)
        return metric


def _exemplar(candidate: TraceCandidate) -> Exemplar:
    return Exemplar(
        time_unix_nano=candidate.closed.step.end,
        as_double=candidate.duration_ns / 1e9,
        trace_id=candidate.trace_id,
        span_id=candidate.span_id,
    )
