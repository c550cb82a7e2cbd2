"""Cumulative sums and histograms become the increases between their points."""

import pytest

from otel_zernel_libraries.histograms.temporality import ToDelta
from tests.libraries.histograms.temporality.running import (
    CUMULATIVE,
    DELTA,
    RunningConversion,
    as_cumulative,
    explicit,
    exponential,
    interval,
    sum_of,
)


@pytest.fixture
def running() -> RunningConversion:
    return RunningConversion(ToDelta)


def test_a_new_series_counts_from_its_start_and_then_by_its_increase(running: RunningConversion) -> None:
    assert running.sums((1, 10, 5)) == [(1, 10, 5)]
    assert running.sums((1, 20, 7), (1, 30, 7)) == [(10, 20, 2), (20, 30, 0)]
    [metric] = running.convert(sum_of([(1, 40, 8)], temporality=CUMULATIVE))
    assert metric.sum.aggregation_temporality == DELTA


def test_the_first_point_of_an_older_series_is_a_baseline(running: RunningConversion) -> None:
    assert running.sums((-100, 10, 5)) == []
    assert running.sums((-100, 20, 7)) == [(10, 20, 2)]
    assert running.dropped.counts == {}


def test_an_exponential_histogram_without_observations_is_a_baseline(running: RunningConversion) -> None:
    running.convert(as_cumulative(exponential(1, 10, 0, 0, [])))
    [metric] = running.convert(as_cumulative(exponential(1, 20, 0, 0, [])))
    assert [point.count for point in metric.exponential_histogram.data_points] == [0]


def test_a_decrease_and_a_later_start_are_resets(running: RunningConversion) -> None:
    running.sums((1, 10, 5))
    assert running.sums((1, 20, 3)) == [(10, 20, 3)]
    assert running.sums((25, 30, 9)) == [(25, 30, 9)]


def test_a_start_that_is_computed_anew_for_each_point_is_no_reset(running: RunningConversion) -> None:
    assert running.sums((1, 10, 1000)) == [(1, 10, 1000)]
    assert running.sums((1.000001, 20, 1010)) == [(10, 20, 10)]
    assert running.sums((1.000002, 30, 1020)) == [(20, 30, 10)]
    assert running.sums((1.000003, 40, 3)) == [(30, 40, 3)]


def test_a_series_whose_sender_sets_its_clock_back_goes_on_after_a_minute(running: RunningConversion) -> None:
    running.sums((0, 3600, 5))
    found = []
    for time in range(10, 100, 10):
        found += running.sums((0, time, 5 + time))
        running.clock.advance(10)
    assert found == [(0, 70, 70), (70, 80, 10), (80, 90, 10)]
    assert running.dropped.counts == {"out_of_order": 6}


def test_a_late_point_is_dropped_and_later_points_have_its_counts(running: RunningConversion) -> None:
    running.sums((1, 10, 5))
    assert running.sums((1, 30, 9), (1, 20, 7)) == [(10, 30, 4)]
    assert running.dropped.counts == {"out_of_order": 1}
    assert running.sums((1, 40, 10)) == [(30, 40, 1)]


def test_a_sum_that_is_not_monotonic_stays_cumulative(running: RunningConversion) -> None:
    metric = sum_of([(1, 10, 5)], temporality=CUMULATIVE, monotonic=False)
    assert running.convert(metric) == [metric]


def test_histograms_become_increases_without_minimum_and_maximum(running: RunningConversion) -> None:
    running.convert(as_cumulative(explicit(1, 10, [1, 2], [1, 2, 3], sum=10, min=0.5, max=9)))
    [point] = running.points(as_cumulative(explicit(1, 20, [1, 2], [1, 3, 3], sum=11.5, min=0.5, max=9)))
    assert (interval(point), list(point.bucket_counts), point.count, point.sum) == ((10, 20), [0, 1, 0], 1, 1.5)
    assert not point.HasField("min")
    assert not point.HasField("max")


def test_an_exponential_histogram_may_grow_coarser(running: RunningConversion) -> None:
    running.convert(as_cumulative(exponential(1, 10, 1, 0, [1, 2, 4, 8], zeros=1)))
    [point] = running.points(as_cumulative(exponential(1, 20, 0, 0, [4, 12, 3], zeros=1)))
    assert (point.count, point.zero_count) == (4, 0)
    assert (point.positive.offset, list(point.positive.bucket_counts)) == (0, [1, 0, 3])


def test_an_exponential_histogram_may_grow_finer(running: RunningConversion) -> None:
    running.convert(as_cumulative(exponential(1, 10, 0, 0, [3])))
    [point] = running.points(as_cumulative(exponential(1, 20, 1, 0, [2, 2])))
    assert (interval(point), point.count, point.scale) == ((10, 20), 1, 0)
    assert (point.positive.offset, list(point.positive.bucket_counts)) == (0, [1])
