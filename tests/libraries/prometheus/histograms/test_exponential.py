"""Exponential histograms: edges that are the same at every scale, and sums that lose no value."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.prometheus.histograms.exponential import ExponentialBuckets, edge
from tests.libraries.prometheus.histograms.filled import SCALES, VALUES, filled


@given(VALUES, VALUES, SCALES, SCALES)
def test_a_sum_has_the_counts_of_both(left: list[float], right: list[float], one: int, other: int) -> None:
    total = filled(left, one) + filled(right, other)
    coarse = filled([*left, *right], min(one, other)).limited_to(160)
    assert total.scale == coarse.scale
    assert total.zero_count == coarse.zero_count
    assert total.count == coarse.count
    assert sum(total.positive.values()) == sum(coarse.positive.values())
    assert sum(total.negative.values()) == sum(coarse.negative.values())


def test_fine_buckets_are_merged_up_to_the_limit() -> None:
    shown = ExponentialBuckets(scale=8, positive=dict.fromkeys(range(1000), 1)).limited_to(32)
    assert (shown.scale, len(shown.positive)) == (3, 32)


@given(st.integers(-10, 20), st.integers(-60, 60), st.integers(0, 10))
def test_an_edge_is_the_same_double_at_every_scale_that_has_it(scale: int, index: int, finer: int) -> None:
    assert edge(index << finer, scale + finer) == edge(index, scale)


@given(st.integers(-10, 20), st.integers(-(10**6), 10**6))
def test_an_edge_is_the_power_of_the_base(scale: int, index: int) -> None:
    exponent = index * 2.0**-scale
    expected = 2.0**exponent if exponent < 1024 else math.inf
    assert edge(index, scale) == pytest.approx(expected, rel=1e-15, abs=1e-320)


def test_a_sum_counts_values_within_the_greater_threshold_as_zero() -> None:
    total = ExponentialBuckets(zero_threshold=4.0, scale=0, zero_count=1) + ExponentialBuckets(
        scale=0, positive={0: 2, 3: 5}, negative={1: 7}
    )
    assert (total.zero_threshold, total.zero_count) == (4.0, 10)
    assert (total.positive, total.negative) == ({3: 5}, {})
