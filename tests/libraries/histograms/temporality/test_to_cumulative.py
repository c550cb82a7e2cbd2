"""Delta sums and histograms become totals, whatever order the deltas arrive in."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from tests.libraries.histograms.temporality.running import (
    CUMULATIVE,
    RunningConversion,
    explicit,
    exponential,
    interval,
    ns,
    sum_of,
)


@pytest.fixture
def running() -> RunningConversion:
    return RunningConversion()


def test_deltas_add_up_from_the_start_of_the_first_one(running: RunningConversion) -> None:
    assert running.sums((0, 10, 5)) == [(0, 10, 5)]
    assert running.sums((10, 20, 2), (20, 30, 1)) == [(0, 20, 7), (0, 30, 8)]
    [metric] = running.convert(sum_of([(30, 40, 1.5)]))
    assert (metric.sum.aggregation_temporality, metric.sum.is_monotonic) == (CUMULATIVE, True)
    assert metric.sum.data_points[0].as_double == 9.5


def test_integers_stay_integers_until_they_are_too_large(running: RunningConversion) -> None:
    [first] = running.points(sum_of([(0, 10, 2**62)]))
    assert (first.WhichOneof("value"), first.as_int) == ("as_int", 2**62)
    [second] = running.points(sum_of([(10, 20, 2**62)]))
    assert (second.WhichOneof("value"), second.as_double) == ("as_double", 2.0**63)


def test_each_series_and_each_metric_has_its_own_total(running: RunningConversion) -> None:
    other = sum_of([(0, 10, 7)], monotonic=False)
    points = running.points(sum_of([(0, 10, 1)], gpu="0"), sum_of([(0, 10, 2)], gpu="1"), sum_of([(0, 10, 3)]), other)
    assert [point.as_int for point in points] == [1, 2, 3, 7]


def test_the_order_of_attributes_does_not_matter(running: RunningConversion) -> None:
    running.convert(sum_of([(0, 10, 1)], gpu="0", rank="3"))
    [point] = running.points(sum_of([(10, 20, 1)], rank="3", gpu="0"))
    assert point.as_int == 2


def test_a_sum_that_is_not_monotonic_may_decrease(running: RunningConversion) -> None:
    points = running.points(sum_of([(0, 10, 5), (10, 20, -7)], monotonic=False))
    assert [point.as_int for point in points] == [5, -2]


def test_a_late_delta_that_fits_into_a_gap_is_in_the_next_point(running: RunningConversion) -> None:
    assert running.sums((0, 10, 1), (20, 30, 4)) == [(0, 10, 1), (0, 30, 5)]
    assert running.convert(sum_of([(10, 20, 2)])) == []
    assert running.sums((30, 40, 8)) == [(0, 40, 15)]
    assert running.dropped.counts == {}


def test_a_repeated_delta_counts_once(running: RunningConversion) -> None:
    running.sums((0, 10, 1), (20, 30, 4))
    assert running.sums((0, 10, 1), (20, 30, 4)) == []
    assert running.sums((10, 20, 2)) == []
    assert running.sums((10, 20, 2)) == []
    assert running.dropped.counts == {"repeated": 3}
    assert running.sums((30, 40, 0)) == [(0, 40, 7)]


def test_a_late_delta_that_differs_from_those_in_the_total_is_no_repetition(running: RunningConversion) -> None:
    running.sums((0, 10, 1), (10, 20, 4))
    assert running.sums((0, 10, 2), (1, 11, 1)) == []
    assert running.dropped.counts == {"out_of_order": 2}


def test_a_series_recognizes_its_newest_deltas_only(running: RunningConversion) -> None:
    running.sums(*((10 * number, 10 * number + 10, 1) for number in range(9)))
    running.sums((0, 10, 1), (10, 20, 1))
    assert running.dropped.counts == {"out_of_order": 1, "repeated": 1}


def test_a_series_whose_sender_sets_its_clock_back_goes_on_after_a_minute(running: RunningConversion) -> None:
    assert running.sums((3600, 3610, 5), (3610, 3620, 1)) == [(3600, 3610, 5), (3600, 3620, 6)]
    found = []
    for time in range(0, 100, 10):
        found += running.sums((time, time + 10, 1))
        running.clock.advance(10)
    assert found == [(60, 70, 13), (60, 80, 14), (60, 90, 15), (60, 100, 16)]
    assert running.dropped.counts == {}


def test_late_deltas_between_timely_ones_do_not_set_a_series_back(running: RunningConversion) -> None:
    running.sums((1000, 1010, 1))
    for time in range(10, 200, 10):
        running.clock.advance(10)
        assert running.sums((time, time + 10, 1)) == []
        assert len(running.sums((1000 + time, 1010 + time, 1))) == 1


@given(st.permutations(range(8)))
def test_deltas_in_any_order_have_the_right_total(order: list[int]) -> None:
    running = RunningConversion()
    for number in order:
        running.sums((10 * number, 10 * number + 10, 2**number))
    assert running.sums((80, 90, 0))[0][2] == 2**8 - 1
    assert running.dropped.counts == {}


def test_overlapping_deltas_all_count(running: RunningConversion) -> None:
    assert running.sums((0, 10, 1), (5, 15, 2)) == [(0, 10, 1), (0, 15, 3)]


def test_a_series_that_its_sender_ended_starts_again(running: RunningConversion) -> None:
    running.sums((0, 10, 5))
    end = sum_of([(0, 20, 0)])
    end.sum.data_points[0].flags = 1
    [stale] = running.points(end)
    assert stale.flags == 1
    assert running.sums((60, 70, 3)) == [(60, 70, 3)]


def test_an_idle_series_is_forgotten_and_starts_again() -> None:
    running = RunningConversion(options={"idle_timeout": "60s"})
    running.sums((0, 10, 5))
    running.clock.advance(61)
    assert running.sums((80, 90, 3)) == [(80, 90, 3)]


def test_series_beyond_the_limit_are_dropped_and_counted_until_others_are_idle() -> None:
    running = RunningConversion(options={"max_series": 2, "idle_timeout": "60s"})
    metrics = [sum_of([(0, 10, 1)], pid=str(pid)) for pid in range(4)]
    assert len(running.points(*metrics)) == 2
    assert running.dropped.counts == {"max_series": 2}
    running.clock.advance(61)
    assert len(running.points(sum_of([(60, 70, 1)], pid="3"))) == 1


def test_large_histograms_take_the_room_of_several_series() -> None:
    running = RunningConversion(options={"max_series": 10})
    bounds = [float(bound) for bound in range(1999)]
    for number in range(10):
        metric = explicit(0, 10, bounds, [1] * 2000)
        metric.name = f"latency.{number}"
        running.convert(metric)
    assert running.dropped.counts == {"max_series": 9}


@pytest.mark.parametrize("value", [math.nan, math.inf, -1])
def test_a_value_that_cannot_be_added_is_dropped_and_counted(running: RunningConversion, value: float) -> None:
    assert running.sums((0, 10, value), (10, 20, 1)) == [(10, 20, 1)]
    assert running.dropped.counts == {"invalid": 1}


def test_explicit_histograms_add_up_with_sum_minimum_and_maximum(running: RunningConversion) -> None:
    running.convert(explicit(0, 10, [1, 2], [1, 2, 3], sum=10, min=0.5, max=9))
    [point] = running.points(explicit(10, 20, [1, 2], [0, 1, 0], sum=1.5, min=1.5, max=1.5))
    assert interval(point) == (0, 20)
    assert (list(point.bucket_counts), point.count, point.sum, point.min, point.max) == ([1, 3, 3], 7, 11.5, 0.5, 9)


def test_other_bounds_are_united_and_counts_stay_at_their_upper_bounds(running: RunningConversion) -> None:
    running.convert(explicit(0, 10, [1, 4], [1, 2, 3]))
    [point] = running.points(explicit(10, 20, [2, 4, 8], [10, 20, 30, 40]))
    assert list(point.explicit_bounds) == [1, 2, 4, 8]
    assert list(point.bucket_counts) == [1, 10, 22, 30, 43]
    assert point.count == 106


def test_the_bounds_of_hdr_counters_stay_exact(running: RunningConversion) -> None:
    """Only used counters have bounds, so bounds differ from delta to delta."""
    running.convert(explicit(0, 10, [0.09, 0.1], [0, 5, 0]), explicit(10, 20, [0.19, 0.2], [0, 7, 0]))
    [point] = running.points(explicit(20, 30, [0.09, 0.1, 0.19, 0.2], [0, 1, 0, 2, 0]))
    assert dict(zip(point.explicit_bounds, point.bucket_counts, strict=False)) == {0.09: 0, 0.1: 6, 0.19: 0, 0.2: 9}


def test_too_many_bounds_are_thinned_out_and_lose_no_count(running: RunningConversion) -> None:
    rng = random.Random(7)
    total = 0
    for number in range(8):
        bounds = sorted({rng.uniform(0, 100) for _ in range(700)})
        metric = explicit(10 * number, 10 * number + 10, bounds, [1] * (len(bounds) + 1))
        total += len(bounds) + 1
        [point] = running.points(metric)
    assert len(point.explicit_bounds) <= 2000
    assert sum(point.bucket_counts) == point.count == total


def test_exponential_histograms_add_up_at_the_coarser_scale(running: RunningConversion) -> None:
    running.convert(exponential(0, 10, 1, 0, [1, 2, 4, 8], zeros=1))
    [point] = running.points(exponential(10, 20, 0, 1, [100], zeros=2))
    assert (point.scale, point.positive.offset, list(point.positive.bucket_counts)) == (0, 0, [3, 112])
    assert (point.zero_count, point.count) == (3, 118)


def test_exponential_histograms_have_at_most_160_buckets(running: RunningConversion) -> None:
    running.convert(exponential(0, 10, 20, -5_000_000, [1]))
    [point] = running.points(exponential(10, 20, 20, 5_000_000, [1]))
    assert len(point.positive.bucket_counts) <= 160
    assert sum(point.positive.bucket_counts) == 2


def test_a_higher_zero_threshold_takes_the_buckets_below_it(running: RunningConversion) -> None:
    running.convert(exponential(0, 10, 0, 0, [1, 2, 4]))
    [point] = running.points(exponential(10, 20, 0, 2, [8], zeros=16, threshold=2.0))
    assert (point.zero_threshold, point.zero_count) == (2.0, 17)
    assert (point.positive.offset, list(point.positive.bucket_counts)) == (1, [2, 12])


def test_a_total_beyond_the_range_of_otlp_starts_again(running: RunningConversion) -> None:
    running.convert(explicit(0, 10, [1], [2**63, 0]))
    [point] = running.points(explicit(10, 20, [1], [2**63, 5]))
    assert (interval(point), point.count) == ((10, 20), 2**63 + 5)


@pytest.mark.parametrize(
    "metric",
    [
        explicit(0, 10, [1, 1], [1, 1, 1]),
        explicit(0, 10, [2, 1], [1, 1, 1]),
        explicit(0, 10, [1], [1, 1, 1]),
        explicit(0, 10, [math.nan], [1, 1]),
        exponential(0, 10, 21, 0, [1]),
        exponential(0, 10, -(2**31), 0, [1]),
        exponential(0, 10, 0, 0, [1], threshold=math.nan),
        exponential(0, 10, 0, 0, [1] * 10_001),
    ],
)
def test_a_histogram_whose_fields_contradict_each_other_is_dropped_and_counted(
    running: RunningConversion, metric: Metric
) -> None:
    assert running.convert(metric) == []
    assert running.dropped.counts == {"invalid": 1}


@given(st.lists(st.tuples(st.integers(-10, 20), st.integers(-(2**31), 2**31 - 200), st.integers(0, 2**64 - 1))))
def test_any_exponential_histograms_can_be_added(given_points: list[tuple[int, int, int]]) -> None:
    running = RunningConversion()
    for number, (scale, offset, count) in enumerate(given_points):
        metric = exponential(number, number + 1, scale, offset, [])
        point = metric.exponential_histogram.data_points[0]
        point.count = count
        point.positive.bucket_counts.extend([count, 0, count])
        for found in running.points(metric):
            assert len(found.positive.bucket_counts) <= 160


def test_gauges_and_cumulative_metrics_stay_as_they_are(running: RunningConversion) -> None:
    gauge = Metric(name="power")
    gauge.gauge.data_points.add(time_unix_nano=ns(1), as_double=3)
    cumulative = sum_of([(0, 10, 5)], temporality=CUMULATIVE)
    unspecified = sum_of([(0, 10, 5)], temporality=0)
    convert = running.convert(gauge, cumulative, unspecified, sum_of([(0, 10, 5)], gpu="1"))
    assert convert[:3] == [gauge, cumulative, unspecified]
