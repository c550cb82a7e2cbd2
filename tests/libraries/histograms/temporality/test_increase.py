"""The increase of a cumulative histogram has each value once, whatever happens to its buckets."""

import math
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
)

from otel_zernel_libraries.histograms.amounts import MalformedAmount, NotComparable
from otel_zernel_libraries.histograms.temporality.track import Track, amount_of
from otel_zernel_libraries.training.durations import Counts, HistogramPoint, RecentDurations, distribution_of
from otel_zernel_libraries.training.increases import DurationIncreases

CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def exponential(values: Iterable[float], scale: int, threshold: float = 0.0) -> ExponentialHistogramDataPoint:
    """A cumulative point, as an SDK makes it."""
    values = list(values)
    point = ExponentialHistogramDataPoint(
        scale=scale, count=len(values), zero_threshold=threshold, start_time_unix_nano=1, time_unix_nano=1 + len(values)
    )
    for side, of_side in ((point.positive, 1), (point.negative, -1)):
        indices = Counter(
            math.ceil(math.log2(abs(value)) * 2**scale) - 1 for value in values if value * of_side > threshold
        )
        if indices:
            side.offset = min(indices)
            side.bucket_counts.extend(indices[index] for index in range(min(indices), max(indices) + 1))
    point.zero_count = sum(abs(value) <= threshold for value in values)
    if values:
        point.min, point.max = min(values), max(values)
    return point


def explicit(values: Iterable[float], bounds: list[float]) -> HistogramDataPoint:
    values, bounds = list(values), sorted(bounds)
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[sum(bound < value for bound in bounds)] += 1
    point = HistogramDataPoint(
        explicit_bounds=bounds,
        bucket_counts=counts,
        count=len(values),
        start_time_unix_nano=1,
        time_unix_nano=1 + len(values),
    )
    if values:
        point.min, point.max = min(values), max(values)
    return point


def increase_of(point: HistogramPoint, previous: HistogramPoint) -> HistogramPoint:
    """A point with the values since the previous one."""
    track = Track(amount_of(previous), previous.start_time_unix_nano, previous.time_unix_nano)
    increase = track.increase(amount_of(point), point.start_time_unix_nano)
    gained = type(point)()
    (amount_of(point) if increase is None else increase).write(gained)
    return gained


def new_durations() -> Callable[[HistogramPoint], Counts]:
    """The new durations of each cumulative point of one series."""
    increases = DurationIncreases(60.0, lambda: None)
    return lambda point: increases.counts(point, CUMULATIVE, lambda: b"s", 0.0)


def test_a_lower_scale_makes_no_value_twice() -> None:
    """A slow first step is a day old. The scale falls because of a fast one: the slow one must not come again."""
    durations, added = RecentDurations(), new_durations()
    old = [30.0, *(0.1 + number / 1000 for number in range(50))]
    assert added(exponential(old, 5)).total() == 0
    durations.add(added(exponential([*old, 0.0001], 3)), 1.0)
    count, quantiles = durations.quantiles(1.0)
    assert count == 1
    assert quantiles == pytest.approx([0.0001, 0.0001], rel=0.1)


@settings(deadline=None)
@given(
    st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30),
    st.lists(st.floats(1e-6, 1e6), max_size=10),
    st.integers(-3, 7),
    st.integers(0, 5),
)
def test_the_increase_of_an_exponential_histogram_is_its_new_values(
    old: list[float], new: list[float], scale: int, fall: int
) -> None:
    gained = increase_of(exponential([*old, *new], scale - fall), exponential(old, scale))
    assert isinstance(gained, ExponentialHistogramDataPoint)
    assert gained.positive == exponential(new, scale - fall).positive
    assert gained.count == len(new)


def test_a_zero_bucket_that_grows_takes_its_old_values_along() -> None:
    old = [-0.0001, 0.0002, 5.0]
    gained = increase_of(exponential([*old, 7.0, 0.0], 3, threshold=0.01), exponential(old, 3))
    assert isinstance(gained, ExponentialHistogramDataPoint)
    assert (gained.zero_count, [*gained.positive.bucket_counts], [*gained.negative.bucket_counts]) == (1, [1], [])


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=30),
    st.lists(st.integers(1, 100), max_size=10),
)
def test_bounds_that_come_with_values_make_no_value_twice(old: list[int], new: list[int]) -> None:
    """As `phases` and `ebpf` emit them: only used counters have bounds."""

    def point(values: list[int]) -> HistogramDataPoint:
        return explicit(map(float, values), sorted({bound + 0.5 for value in values for bound in (value - 1, value)}))

    gained = increase_of(point([*old, *new]), point(old))
    assert distribution_of(gained) == Counter(map(float, new))


def test_a_new_maximum_moves_no_old_value() -> None:
    """The middle of the last bucket depends on the maximum."""
    before, after = explicit([0.5, 20.0], [1.0, 10.0]), explicit([0.5, 20.0, 90.0], [1.0, 10.0])
    assert sum(distribution_of(increase_of(after, before)).values()) == 1


@pytest.mark.parametrize("make", [lambda values: exponential(values, 3), lambda values: explicit(values, [1.0, 10.0])])
def test_a_series_that_begins_again_has_only_new_values(make: Callable[[list[float]], HistogramPoint]) -> None:
    fewer = make([0.5, 2.0])
    assert sum(distribution_of(increase_of(fewer, make([0.5, 2.0, 3.0]))).values()) == 2
    later = make([4.0, 5.0, 6.0, 7.0])
    later.start_time_unix_nano = 100
    assert sum(distribution_of(increase_of(later, make([0.5, 2.0, 3.0]))).values()) == 4


def test_a_point_of_another_kind_is_not_comparable_and_that_is_no_reset() -> None:
    with pytest.raises(NotComparable):
        increase_of(exponential([1.0, 2.0], 3), explicit([1.0], [1.0]))
    with pytest.raises(NotComparable):
        increase_of(explicit([1.0, 2.0], [1.0]), exponential([1.0], 3))


def test_the_first_point_and_one_of_another_kind_give_no_durations() -> None:
    added = new_durations()
    assert added(explicit([1.0], [1.0])) == {}
    assert added(exponential([1.0, 2.0], 3)) == {}
    assert [*added(exponential([1.0, 2.0, 4.0], 3)).values()] == [1]


def test_fields_that_contradict_each_other_give_no_durations() -> None:
    added = new_durations()
    added(explicit([1.0, 2.0], [1.0]))
    odd = HistogramDataPoint(explicit_bounds=[1.0, 2.0], bucket_counts=[1], count=3)
    assert added(odd) == {}


def test_a_late_point_gives_no_durations() -> None:
    added = new_durations()
    added(exponential([1.0, 2.0], 3))
    added(exponential([1.0, 2.0, 3.0], 3))
    assert added(exponential([1.0, 2.0], 3)) == {}
    assert added(exponential([1.0, 2.0, 3.0, 4.0], 3)).total() == 1


@pytest.mark.parametrize("scale", [-(2**31), 2**31 - 1])
def test_a_scale_beyond_the_range_is_refused(scale: int) -> None:
    odd = exponential([1.0, 2.0, 4.0], 3)
    odd.scale = scale
    with pytest.raises(MalformedAmount):
        amount_of(odd)
