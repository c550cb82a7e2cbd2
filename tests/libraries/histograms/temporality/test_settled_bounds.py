"""Histograms with moving bounds get a form that a backend adds up rightly, whatever the bounds and resets are.

The backend of these tests is strict: it adds up only points of one kind and with equal bounds, and takes any decrease
for a restart. The model counts events.
"""

import math
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ScopeMetrics

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Descriptor, encode_metric, has_moving_bounds, key_values
from otel_zernel.testing import Dropped, FakeClock
from otel_zernel_libraries.histograms.quantiles import histogram_quantiles
from otel_zernel_libraries.histograms.temporality import SeriesMemoryConfig, SettledBounds, ToCumulative
from otel_zernel_libraries.histograms.temporality.settled import WatchedSeries
from otel_zernel_libraries.prometheus.histograms import default_bounds
from tests.libraries.histograms.temporality.running import RunningConversion, as_cumulative, explicit
from tests.libraries.histograms.temporality.test_moving_bounds import Report, counts_of, cumulative_points, reports
from tests.otlp import data, metrics_in

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
        batch = Batch.from_bytes(metrics=data(*metrics).SerializeToString())
        if not self.bounds.concerns(batch):
            return list(metrics)
        return metrics_in(self.bounds.convert(batch, self.dropped).metrics)


@pytest.fixture
def settling() -> Settling:
    return Settling()


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
            if before is not None and point.start_time_unix_nano < before.time_unix_nano:  # a start may move a little
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


def one(bounds: list[float], counts: list[int], *, start: float = 1, time: float = 10) -> Metric:
    """A cumulative point."""
    return as_cumulative(explicit(start, time, bounds, counts, sum=1.0))


def test_bounds_that_stay_are_forwarded_as_the_bytes_that_arrived(settling: Settling) -> None:
    for time in (10, 20, 30):
        encoded = data(one([1, 2], [time, 0, 0], time=time)).SerializeToString()
        encoded += b"\xfa\x3e\x01x"  # an unknown field, which a new encoding would move
        settled = settling.bounds.convert(Batch.from_bytes(metrics=encoded), settling.dropped)
        assert settled.bytes_of("metrics") == encoded
        assert settled.metrics.resource_metrics[0].scope_metrics[0].metrics[0].HasField("histogram")


def test_a_sender_that_begins_again_with_other_bounds_does_not_move_them(settling: Settling) -> None:
    settling.metrics(one([1, 2], [1, 2, 3]))
    [again] = settling.metrics(one([1, 5], [4, 0, 4], start=15, time=20))
    assert again.WhichOneof("data") == "histogram"


def test_marked_steps_keep_their_quantiles_from_the_first_point_on() -> None:
    durations = [0.1 * 1.002**step for step in range(1000)]
    bounds = sorted({bound for duration in durations for bound in (round(duration - 1e-6, 6), round(duration, 6))})
    settling = Settling()
    [metric] = settling.metrics(marked(explicit(0, 10, bounds, counts_of(durations, bounds), sum=sum(durations))))
    [point] = metric.exponential_histogram.data_points
    assert histogram_quantiles(point, [0.5, 0.9, 0.99]) == pytest.approx(
        [durations[499], durations[899], durations[989]], rel=0.01
    )


@pytest.mark.parametrize("lost", [None, 0, 1, 4, 8])
def test_a_lost_point_changes_no_quantile_of_the_others(lost: int | None) -> None:
    """A sender passes its totals on as they are, and the next collector gets one less. The first step is slow."""
    running, settling = RunningConversion(ToCumulative), Settling()
    steps = [30.0, *(0.1 * 1.002 ** (step * 7919 % 999) for step in range(999))]
    for report in range(10):
        new = steps[100 * report : 100 * (report + 1)]
        bounds = sorted({bound for step in new for bound in (round(step * 0.998, 6), round(step, 6))})
        extremes = {"min": min(new), "max": max(new)}
        delta = explicit(10 * report, 10 * report + 10, bounds, counts_of(new, bounds), sum=sum(new), **extremes)
        [total] = running.convert(delta)
        if report != lost:
            [settled] = settling.metrics(marked(total))
    [point] = settled.exponential_histogram.data_points
    assert (point.count, point.sum) == pytest.approx((1000, sum(steps)))
    expected = [sorted(steps)[round(1000 * share)] for share in (0.5, 0.9, 0.99)]
    assert histogram_quantiles(point, [0.5, 0.9, 0.99]) == pytest.approx(expected, rel=0.02)


def test_points_that_cannot_be_settled_are_dropped_and_counted() -> None:
    settling = Settling(max_series=1)
    settling.metrics(marked(one([1], [1, 0])))
    late, wrong, other = (marked(one([1], [1, 0])) for _ in range(3))
    wrong.histogram.data_points[0].bucket_counts.append(1)
    other.histogram.data_points[0].attributes.extend(key_values({"gpu": "1"}))
    assert settling.metrics(late) == settling.metrics(wrong) == settling.metrics(other) == []
    assert settling.dropped.counts == {"out_of_order": 1, "invalid": 1, "max_series": 1}


def test_the_end_of_a_series_is_passed_on_and_frees_its_memory(settling: Settling) -> None:
    settling.metrics(marked(one([1], [1, 0])))
    ended = marked(one([1], [0, 0], time=20))
    ended.histogram.data_points[0].flags = 1
    [metric] = settling.metrics(ended)
    assert metric.exponential_histogram.data_points[0].flags == 1
    assert len(settling.bounds) == 0


def test_negative_values_and_zeros_keep_their_sides(settling: Settling) -> None:
    [metric] = settling.metrics(marked(explicit(0, 10, [-2.0, -1.0, 0.0, 1.0], [0, 3, 0, 4, 0])))
    [point] = metric.exponential_histogram.data_points
    assert (sum(point.negative.bucket_counts), point.zero_count, sum(point.positive.bucket_counts)) == (3, 0, 4)


def test_a_count_without_buckets_is_placed_at_its_mean(settling: Settling) -> None:
    metric = marked(explicit(0, 10, [], [], sum=8.0))
    metric.histogram.data_points[0].count = 4
    [settled] = settling.metrics(metric)
    [point] = settled.exponential_histogram.data_points
    assert (point.count, sum(point.positive.bucket_counts)) == (4, 4)
    assert histogram_quantiles(point, [0.5]) == pytest.approx([2.0], rel=0.01)


def with_gpu(metric: Metric, gpu: str) -> Metric:
    for point in metric.histogram.data_points:
        point.attributes.extend(key_values({"gpu": gpu}))
    return metric


@pytest.mark.parametrize(
    ("bounds", "counts"), [([1.0, math.inf], [1, 2, 0]), ([1.0, 2.0], [1, 2]), ([2.0, 1.0], [1, 1, 1])]
)
def test_a_malformed_point_is_never_watched_and_harms_no_other_series(
    settling: Settling, bounds: list[float], counts: list[int]
) -> None:
    settling.metrics(with_gpu(one(bounds, counts), "0"), with_gpu(one([1, 2], [1, 1, 1]), "1"))
    for time in (20, 30):
        good = [
            with_gpu(one([1, 3], [1, 2, time], time=time), "0"),
            with_gpu(one([1, 2], [1, 1, time], time=time), "1"),
        ]
        assert settling.metrics(*good) == good
    assert settling.dropped.counts == {}


def test_a_start_that_moves_by_nanoseconds_does_not_hide_moving_bounds(settling: Settling) -> None:
    settling.metrics(one([1, 2], [1, 2, 3], start=1))
    [moved] = settling.metrics(one([1, 5], [1, 6, 0], start=1.000001, time=20))
    assert moved.WhichOneof("data") == "exponential_histogram"


def test_a_watched_series_keeps_a_digest_of_its_bounds_only() -> None:
    [long, short] = [explicit(0, 10, range(size), [1] * (size + 1)).histogram.data_points[0] for size in (1000, 2)]
    kept = [WatchedSeries(point, is_cumulative=False)._bounds for point in (long, short)]
    assert [len(digest) for digest in kept] == [16, 16]
    assert not WatchedSeries(long, is_cumulative=False).moves_to(WatchedSeries(long, is_cumulative=False))
    assert WatchedSeries(long, is_cumulative=False).moves_to(WatchedSeries(short, is_cumulative=False))
