"""Histograms with moving bounds get a form that a backend adds up rightly, whatever the bounds and resets are.

The backend of these tests is strict: it adds up only points of one kind and with equal bounds, and takes any decrease
for a restart. The model counts events.
"""

import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ScopeMetrics

from otel_zernel.batch import Batch
from otel_zernel.component import PAUSE
from otel_zernel.exposition.histograms import default_bounds
from otel_zernel.otlp.points import Descriptor, encode_metric, has_moving_bounds
from otel_zernel.temporality import SeriesMemoryConfig, SettledBounds
from otel_zernel.testing import Dropped, FakeClock
from tests.core.temporality.running import explicit
from tests.core.temporality.test_moving_bounds import Report, counts_of, cumulative_points, reports

Form = Literal["exponential", "fixed"]


@dataclass
class Settling:
    """A conversion under test."""

    form: Form = "exponential"
    dropped: Dropped = field(default_factory=Dropped)
    clock: FakeClock = field(default_factory=FakeClock)
    max_series: int = 100

    def __post_init__(self) -> None:
        config = SeriesMemoryConfig(max_series=self.max_series)
        self.bounds = SettledBounds(self.form, lambda _, unit: default_bounds(unit).values, config, self.clock)

    def metrics(self, *metrics: Metric) -> list[Metric]:
        data = MetricsData()
        data.resource_metrics.add().scope_metrics.add().metrics.extend(metrics)
        batch = Batch.from_bytes(metrics=data.SerializeToString())
        if not self.bounds.concerns(batch):
            return list(metrics)
        [settled] = [one for one in self.bounds.convert(batch, self.dropped) if one is not PAUSE]
        return [metric for scope in settled.metrics.resource_metrics[0].scope_metrics for metric in scope.metrics]


def marked(metric: Metric) -> Metric:
    """The metric as `ebpf` and `phases` mark it."""
    header = encode_metric(Descriptor(metric.name, metric.unit, "histogram", moving_bounds=True), b"")
    [described] = ScopeMetrics.FromString(header).metrics
    metric.metadata.extend(described.metadata)
    return metric


@dataclass
class StrictBackend:
    """Adds up the points of one series."""

    count: int = 0
    total: float = 0.0
    last: dict[str, Any] = field(default_factory=dict)
    """The newest cumulative point by kind."""
    changes: int = 0
    """How often the bounds changed without a restart."""

    def take(self, metric: Metric) -> None:
        kind = metric.WhichOneof("data") or ""
        data = getattr(metric, kind)
        for point in data.data_points:
            before = self.last.get(kind) if data.aggregation_temporality == 2 else None
            self.last[kind] = point
            if before is not None and before.start_time_unix_nano == point.start_time_unix_nano:
                assert not self.decreased(before, point)
                self.count += point.count - before.count
                self.total += point.sum - before.sum
            else:
                assert before is None or point.start_time_unix_nano > before.start_time_unix_nano
                self.count += point.count
                self.total += point.sum

    def decreased(self, before: Any, point: Any) -> bool:
        """Whether a bucket has fewer values than in an earlier point."""
        if hasattr(point, "explicit_bounds"):
            if list(before.explicit_bounds) != list(point.explicit_bounds):
                self.changes += 1
                return bool(before.count > point.count)
            return any(map(operator.gt, before.bucket_counts, point.bucket_counts))
        assert before.scale >= point.scale
        former = Counter[int]()
        for index, count in enumerate(before.positive.bucket_counts, before.positive.offset):
            former[index >> (before.scale - point.scale)] += count
        former.subtract(dict(enumerate(point.positive.bucket_counts, point.positive.offset)))
        return before.zero_count > point.zero_count or max(former.values(), default=0) > 0


def deltas(given_reports: Sequence[Report]) -> Iterable[Metric]:
    for number, report in enumerate(given_reports, 1):
        counts = counts_of(report.events, report.bounds)
        yield explicit(10 * number - 10, 10 * number, report.bounds, counts, sum=sum(report.events))


def cumulative_metrics(given_reports: Sequence[Report]) -> Iterable[Metric]:
    for point in cumulative_points(given_reports):
        metric = Metric(name="latency", unit="s")
        metric.histogram.aggregation_temporality = 2  # type: ignore[assignment]  # an enum's number
        metric.histogram.data_points.append(point)
        yield metric


@given(reports, st.booleans(), st.booleans(), st.sampled_from(["exponential", "fixed"]))
def test_a_strict_backend_counts_each_event_once(
    given_reports: list[Report], is_cumulative: bool, is_marked: bool, form: Form
) -> None:
    settling, backend = Settling(form), StrictBackend()
    for metric in (cumulative_metrics if is_cumulative else deltas)(given_reports):
        for settled in settling.metrics(marked(metric) if is_marked else metric):
            assert not has_moving_bounds(settled)
            backend.take(settled)
    assert settling.dropped.counts == {}
    assert backend.changes <= (form == "fixed" and not is_marked)
    assert backend.count == sum(len(report.events) for report in given_reports)
    assert backend.total == pytest.approx(sum(sum(report.events) for report in given_reports))
