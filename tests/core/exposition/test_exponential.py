"""Exponential histograms as classic buckets: every value is counted, and in the right bucket."""

import math
from bisect import bisect_left
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.exposition.exponential import MAX_SHOWN_BUCKETS, ExponentialBuckets

VALUES = st.lists(st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6), max_size=40)
SCALES = st.integers(-4, 10)


def filled(values: list[float], scale: int) -> ExponentialBuckets:
    """The buckets of the values, as the data model defines them."""
    histogram = ExponentialBuckets(scale)
    for value in values:
        if value == 0:
            histogram.zero_count += 1
            continue
        side = histogram.positive if value > 0 else histogram.negative
        index = math.ceil(math.log2(abs(value)) * 2**scale) - 1
        side[index] = side.get(index, 0) + 1
    return histogram


def width(histogram: ExponentialBuckets) -> float:
    """The ratio of a bucket's bounds, with a margin for the rounding of logarithms."""
    return float(2.0 ** (2.0**-histogram.scale)) * (1 + 1e-9)


@given(VALUES, SCALES)
def test_buckets_count_every_value_once_and_in_order(values: list[float], scale: int) -> None:
    bounds, totals = filled(values, scale).classic()
    assert totals[-1] == len(values)
    assert totals == sorted(totals)
    assert all(low < high for low, high in pairwise(bounds))
    assert len(totals) == len(bounds) + 1
    assert len(bounds) <= 2 * (MAX_SHOWN_BUCKETS + 1) + 1


@given(VALUES, SCALES)
def test_each_bucket_counts_the_values_up_to_its_bound(values: list[float], scale: int) -> None:
    histogram = filled(values, scale)
    bounds, totals = histogram.classic()
    for bound, total in zip(bounds, totals, strict=False):
        slack = abs(bound) * 1e-9
        surely = sum(value <= bound - slack for value in values)
        perhaps = sum(value <= bound + slack for value in values)
        assert surely <= total <= perhaps


@given(VALUES, VALUES, SCALES, SCALES)
def test_a_sum_has_the_counts_of_both(left: list[float], right: list[float], one: int, other: int) -> None:
    total = filled(left, one) + filled(right, other)
    coarse = filled([*left, *right], min(one, other)).limited_to(160)
    assert total.scale == coarse.scale
    assert total.zero_count == coarse.zero_count
    assert sum(total.positive.values()) == sum(coarse.positive.values())
    assert sum(total.negative.values()) == sum(coarse.negative.values())


def test_bounds_are_the_powers_of_the_base() -> None:
    bounds, totals = ExponentialBuckets(scale=0, zero_count=1, positive={-1: 2, 1: 3}, negative={2: 4}).classic()
    assert bounds == [-8.0, -4.0, 0.0, 0.5, 1.0, 2.0, 4.0]
    assert totals == [0, 4, 5, 5, 7, 7, 10, 10]


def test_fine_buckets_are_merged_up_to_the_limit() -> None:
    shown = ExponentialBuckets(scale=8, positive=dict.fromkeys(range(1000), 1)).limited_to(MAX_SHOWN_BUCKETS)
    assert (shown.scale, len(shown.positive)) == (3, 32)


def test_a_zero_threshold_above_the_least_bucket_keeps_the_order() -> None:
    bounds, totals = ExponentialBuckets(scale=0, zero_threshold=4.0, zero_count=7, positive={0: 1}).classic()
    assert (bounds, totals) == ([1.0, 2.0], [7, 8, 8])


def test_bounds_beyond_the_range_of_floats_become_infinity() -> None:
    bounds, totals = ExponentialBuckets(scale=-10, positive={0: 1, 1: 2}).classic()
    assert bounds[bisect_left(bounds, 1.0)] == 1.0
    assert totals[-1] == 3
    assert all(map(math.isfinite, bounds))
