"""Histogram input: the count of a bucket is spread over its value range.

Delta input: only an exact repetition is dropped.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
)

from otel_zernel.batch import points
from otel_zernel_libraries.histograms.hdr import HdrLayout
from otel_zernel_processors.percentiles.intake.intake import RepeatedDeltas
from tests import otlp
from tests.libraries.histograms.temporality.running import sum_of
from tests.otlp import CUMULATIVE, DELTA
from tests.processors.percentiles.running import RunningProcessor, fed, quantiles


def explicit(
    counts: list[int],
    bounds: list[float],
    *,
    temporality: AggregationTemporality.ValueType = DELTA,
    start: int = 1,
    **fields: Any,
) -> Metric:
    metric = otlp.histogram("latency", bounds, counts, time=0, temporality=temporality)
    more = HistogramDataPoint(start_time_unix_nano=start, **fields)  # sum, min and max
    metric.histogram.data_points[0].MergeFrom(more)
    return metric


def exponential(
    counts: list[int],
    *,
    scale: int,
    offset: int,
    zero: int = 0,
    negative: int = 0,
    temporality: AggregationTemporality.ValueType = DELTA,
) -> Metric:
    below = (0, [negative] if negative else [])
    metric = otlp.exponential(
        "latency", scale, (offset, counts), below, zero_count=zero, sum_=1.0, time=0, temporality=temporality
    )
    metric.exponential_histogram.data_points[0].start_time_unix_nano = 1
    return metric


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50))
def test_buckets_bounded_by_hdr_counters_are_exact(values_ns: list[int]) -> None:
    layout = HdrLayout(10**9)
    counts = layout.count(values_ns)
    used = np.flatnonzero(counts)
    # Each used counter is a bucket, from the highest value of the previous counter to its own highest value.
    edges = sorted(
        {*(layout.highest_equivalent(used[used > 0] - 1)).tolist(), *layout.highest_equivalent(used).tolist()}
    )
    bounds = [edge / 1e9 for edge in edges]
    buckets = np.zeros(len(bounds) + 1, np.int64)
    np.add.at(buckets, np.searchsorted(edges, layout.highest_equivalent(used)), counts[used])
    point = fed(explicit(buckets.tolist(), bounds, sum=1.5)).point()
    assert (point.count, point.sum) == (len(values_ns), 1.5)
    percentiles = {q: layout.percentiles(counts, [q * 100])[0] / 1e9 for q in quantiles(point)}
    assert quantiles(point) == percentiles


def test_a_wide_bucket_is_spread_evenly_within_the_known_smallest_and_largest_value() -> None:
    running = fed(explicit([0, 1000, 0], [1.0, 2.0], sum=1500), quantiles=[0.25, 0.5, 0.75])
    expected = {0: 1, 0.25: 1.25, 0.5: 1.5, 0.75: 1.75, 1: 2}
    assert quantiles(running.point()) == {q: pytest.approx(value, abs=1 / 32) for q, value in expected.items()}

    running = fed(explicit([10, 0, 10], [1.0, 2.0], sum=30, min=0.5, max=3.0), quantiles=[0.5])
    assert quantiles(running.point()) == {q: pytest.approx(v, rel=0.06) for q, v in {0: 0.5, 0.5: 1, 1: 3}.items()}


def test_open_buckets_end_at_zero_and_the_last_bound_without_min_and_max() -> None:
    running = fed(explicit([1, 1], [1.0]), quantiles=[])
    assert quantiles(running.point()) == {0: pytest.approx(0.5, rel=1e-3), 1: pytest.approx(1, rel=1e-3)}


def test_buckets_below_zero_are_dropped_and_counted() -> None:
    running = fed(explicit([2, 3, 4, 5], [-2.0, -1.0, 0.0]))
    assert running.dropped == {"negative": 5}
    assert running.point().count == 9


def test_counts_beyond_the_largest_value_are_clamped_and_counted() -> None:
    running = fed(explicit([0, 0, 7], [1.0, 8000.0], sum=1.0))
    assert running.clamped == 7
    assert quantiles(running.point())[1] == pytest.approx(3600, rel=1e-3)


def test_huge_bounds_are_clamped() -> None:
    running = fed(explicit([0, 0, 2, 3], [1.0, 1e305, float("inf")]))
    running.process(exponential([1, 1], scale=0, offset=1022))
    assert running.point().count == 7


def test_a_histogram_without_buckets_counts_at_its_mean() -> None:
    running = RunningProcessor()
    metric = explicit([], [], sum=12.0)
    metric.histogram.data_points[0].count = 4
    running.process(metric)
    point = running.point()
    assert (point.count, point.sum) == (4, 12.0)
    assert quantiles(point)[0.5] == pytest.approx(3, rel=1e-3)


def test_a_histogram_without_a_sum_gets_one_from_the_middle_of_its_buckets() -> None:
    assert fed(explicit([0, 10, 0], [1.0, 2.0])).point().sum == pytest.approx(15)


def test_a_sum_with_values_below_zero_is_ignored_so_that_sums_only_increase() -> None:
    running = RunningProcessor()
    metric = explicit([3, 0, 2, 0], [-5.0, 0.0, 2.0])
    metric.histogram.data_points[0].sum = -10.0
    running.process(metric)
    assert running.point().sum == pytest.approx(2)


def test_huge_values_have_a_sum_too() -> None:
    assert fed(exponential([1], scale=-6, offset=1)).point().sum > 0


def test_a_count_too_large_for_exact_ranks_still_has_quantiles() -> None:
    running = fed(exponential([1], scale=0, offset=0, zero=4191458691672016), quantiles=[0.5])  # (1, 2]
    assert quantiles(running.point())[0.5] == 0


def test_exponential_buckets_go_to_their_range_and_the_zero_bucket_to_zero() -> None:
    point = fed(exponential([4], scale=0, offset=3, zero=2), quantiles=[0.5]).point()  # (8, 16]
    assert (point.count, point.sum) == (6, 1.0)
    values = quantiles(point)
    assert values[0] == 0
    assert 8 < values[0.5] < values[1] <= 16.02


def test_negative_exponential_buckets_are_dropped_and_counted() -> None:
    assert fed(exponential([1], scale=2, offset=0, negative=3)).dropped == {"negative": 3}


@given(st.lists(st.integers(0, 5), min_size=1, max_size=200), st.integers(-10, 20), st.integers(-4000, 4000))
def test_every_value_of_an_exponential_histogram_is_counted(counts: list[int], scale: int, offset: int) -> None:
    assert fed(exponential(counts, scale=scale, offset=offset)).point().count == sum(counts)


def test_a_cumulative_histogram_counts_its_increase() -> None:
    running = RunningProcessor()
    send = [([1, 1], 1, 1.0), ([3, 1], 1, 2.5), ([3, 1], 1, 2.5), ([1, 0], running.clock.time_ns() + 1, 0.5)]
    counted = []
    for counts, start, total in send:
        running.process(explicit(counts, [1.0], temporality=CUMULATIVE, start=start, sum=total))
        point = running.point()
        counted.append((point.count, point.sum))
    assert counted == [(0, 0), (2, 1.5), (2, 1.5), (3, 2.0)]


def test_a_cumulative_series_that_began_after_the_processor_counts_from_its_first_point() -> None:
    running = RunningProcessor()
    running.process(explicit([1], [], temporality=CUMULATIVE, start=running.clock.time_ns(), sum=1))
    metric = explicit([5], [], temporality=CUMULATIVE, start=running.clock.time_ns() + 1, sum=5)
    metric.name = "other"
    running.process(metric)
    assert sorted(point.count for point in running.points()) == [0, 5]


UNSPECIFIED = AggregationTemporality.AGGREGATION_TEMPORALITY_UNSPECIFIED


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (explicit([1], [], temporality=UNSPECIFIED), "temporality"),
        (explicit([1, 2, 3], [1.0]), "invalid"),
        (explicit([1, 2, 3], [2.0, 1.0]), "invalid"),
        (explicit([1, 2, 3], [1.0, float("nan")]), "invalid"),
        (explicit([0, 1], [float("nan")]), "invalid"),
        (explicit([2**63, 1], [1.0]), "invalid"),
        (exponential([1], scale=-(2**31), offset=0), "invalid"),
    ],
)
def test_an_invalid_histogram_is_dropped_and_counted(metric: Metric, reason: str) -> None:
    assert fed(metric).dropped == {reason: 1}


def test_ended_cumulative_series_free_memory_although_their_merged_series_continues() -> None:
    running = RunningProcessor({"max_series": 1, "group_by": [], "idle_timeout": "15s"})
    for pod in range(3):
        metric = explicit([1], [], temporality=CUMULATIVE, sum=1)
        metric.histogram.data_points[0].attributes.add(key="pod").value.int_value = pod
        running.process(metric)
        metric.histogram.data_points[0].bucket_counts[0] = 3
        running.process(metric)
        assert running.point().count == 3 * pod + 2
        running.process(explicit([1], [], sum=1))
        running.point()
    assert running.dropped == {}


def test_cumulative_series_beyond_the_limit_are_dropped_and_counted() -> None:
    running = RunningProcessor({"max_series": 1})
    first, second = (explicit([1], [], temporality=CUMULATIVE) for _ in range(2))
    second.name = "other"
    running.process(first, second)
    assert running.dropped == {"max_series": 1}


def test_a_histogram_without_recorded_value_is_skipped() -> None:
    running = RunningProcessor()
    metric = explicit([1], [])
    metric.histogram.data_points[0].flags = 1
    running.process(metric)
    assert running.points() == []


DOUBLES, COUNTS, INT32 = st.floats(), st.integers(0, 2**64 - 1), st.integers(-(2**31), 2**31 - 1)
BUCKETS = st.lists(st.sampled_from([0, 1, 7, 2**40, 2**64 - 1]), max_size=4)
EXPLICIT = st.builds(
    HistogramDataPoint,
    **{name: st.none() | DOUBLES for name in ("sum", "min", "max")},
    count=COUNTS,
    bucket_counts=BUCKETS,
    explicit_bounds=st.lists(DOUBLES, max_size=3).map(sorted),
    start_time_unix_nano=COUNTS,
)
SIDE = st.builds(ExponentialHistogramDataPoint.Buckets, offset=INT32, bucket_counts=BUCKETS)
EXPONENTIAL = st.builds(
    ExponentialHistogramDataPoint,
    **{name: st.none() | DOUBLES for name in ("sum", "min", "max")},
    count=COUNTS,
    zero_count=COUNTS,
    zero_threshold=DOUBLES,
    scale=st.integers(-10, 20) | INT32,
    positive=SIDE,
    negative=SIDE,
    start_time_unix_nano=COUNTS,
)


@given(st.lists(st.tuples(EXPLICIT | EXPONENTIAL, st.sampled_from([DELTA, CUMULATIVE])), max_size=4))
def test_after_any_point_the_next_points_are_counted(
    sent: list[tuple[HistogramDataPoint | ExponentialHistogramDataPoint, AggregationTemporality.ValueType]],
) -> None:
    running = RunningProcessor({"outputs": ["summary", "histogram"]})
    for point, temporality in sent:
        metric = Metric(name="any", unit="s")
        kind = metric.histogram if isinstance(point, HistogramDataPoint) else metric.exponential_histogram
        kind.aggregation_temporality = temporality
        kind.data_points.append(point)  # type: ignore[arg-type]  # the kind is the point's
        running.process(metric)
    running.process(explicit([0, 3], [1.0]))
    assert 3 in [point.count for metric in running.tick() for point in metric.summary.data_points]


@pytest.mark.parametrize("make", [explicit, exponential], ids=["explicit", "exponential"])
def test_a_repeated_delta_counts_once_and_a_late_one_that_fills_a_gap_counts(make: Callable[..., Metric]) -> None:
    running, counted = RunningProcessor(), []
    second = 10**9
    for start, end in ((1, 2), (2, 3), (2, 3), (5, 6), (3, 5), (3, 5), (1, 2), (6, 7)):
        metric = explicit([2], []) if make is explicit else exponential([2], scale=0, offset=0)
        (point,) = points(metric)
        point.start_time_unix_nano, point.time_unix_nano = start * second, end * second
        running.process(metric)
        counted.append(running.point().count)
    assert counted == [2, 4, 4, 6, 8, 8, 8, 10]
    assert running.dropped == {"repeated": 3}


def test_a_repeated_delta_of_a_sum_counts_once() -> None:
    running, counted = RunningProcessor(), []
    for start, end, value in ((1, 2, 7), (2, 3, 7), (2, 3, 7), (1, 2, 7), (3, 4, 7), (3, 4, 8)):
        metric = sum_of([(start, end, value)])
        running.process(metric)
        counted.append(running.point().count)
    assert counted == [1, 2, 2, 2, 3, 4]
    assert running.dropped == {"repeated": 2}


def test_a_cumulative_sum_or_a_gauge_may_have_equal_points() -> None:
    running = RunningProcessor()
    for _ in range(3):
        running.process(sum_of([(1, 2, 7)], temporality=CUMULATIVE))
    assert running.point().count == 3


@pytest.mark.parametrize("make", [explicit, exponential], ids=["explicit", "exponential"])
def test_a_late_cumulative_point_adds_nothing_and_is_no_reset(make: Callable[..., Metric]) -> None:
    """A sender that gets no answer sends its last points again. Each has as many values as seconds."""
    running, counted = RunningProcessor(), []
    for second in (1, 2, 4, 3, 1, 4, 5):
        more = {} if make is explicit else {"scale": 0, "offset": 0}
        metric = make([second], *([[]] if make is explicit else []), temporality=CUMULATIVE, **more)
        (point,) = points(metric)
        point.time_unix_nano = second * 10**9
        running.process(metric)
        counted.append(running.point(1).count)
    assert counted == [0, 1, 3, 3, 3, 3, 4]
    assert running.dropped == {}


def test_after_a_minute_of_late_cumulative_points_the_clock_of_the_sender_was_set_back() -> None:
    running, counted = RunningProcessor(), []
    for count, second in ((5, 1000), (6, 10), (7, 90), (9, 100)):
        metric = explicit([count], [], temporality=CUMULATIVE)
        metric.histogram.data_points[0].time_unix_nano = second * 10**9
        running.process(metric)
        counted.append(running.point(80).count)
    assert counted == [0, 0, 2, 4]


def delta(count: int, start: float, end: float, *, rank: int = 0) -> Metric:
    metric = explicit([count], [], start=round(start * 1e9))
    [point] = metric.histogram.data_points
    point.time_unix_nano = round(end * 1e9)
    point.attributes.add(key="rank").value.int_value = rank
    return metric


def test_deltas_of_two_senders_with_equal_attributes_add_up() -> None:
    running = RunningProcessor()
    for tick in range(1, 10):
        running.process(delta(1, tick + 0.5, tick + 1.5), delta(1, tick, tick + 1))
    running.process(delta(2, 5, 6))
    assert running.point().count == 20
    assert running.dropped == {}


def test_merged_series_may_be_more_than_the_limit() -> None:
    running = RunningProcessor({"max_series": 5, "group_by": []})
    for tick in range(1, 3):
        for rank in range(100):
            running.process(delta(1, tick, tick + 1, rank=rank))
    assert running.point().count == 200
    assert running.dropped == {}


def test_the_memory_of_deltas_forgets_the_oldest_ones() -> None:
    repeated = RepeatedDeltas(most=10)
    points = [delta(1, tick, tick + 1).histogram.data_points[0] for tick in range(1, 101)]
    assert all(repeated.add("series", point) for point in points)
    assert not any(repeated.add("series", point) for point in points[-10:])
    assert repeated.add("series", points[0])
    assert repeated.add("other", points[-1])


def test_a_delta_with_an_infinite_bound_counts() -> None:
    running = RunningProcessor()
    metric = explicit([1, 1, 0], [1.0, float("inf")], sum=1.0)
    metric.histogram.data_points[0].time_unix_nano = 10**9
    running.process(metric)
    assert running.point().count == 2
    assert running.dropped == {}
