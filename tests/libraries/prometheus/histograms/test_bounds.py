"""Classic bounds: where values count, and the text of `le`."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.utils import floatToGoString

from otel_zernel_libraries.prometheus.histograms import (
    Bounds,
    ExponentialBuckets,
    bound_text,
    bounds_of,
    default_bounds,
)
from tests.libraries.prometheus.histograms.filled import SCALES, VALUES, filled, width

UNITS = ("s", "ms", "us", "ns", "By", "By/s", "1", "%", "Cel", "W", "Hz", "", "{step}")
BOUNDS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20, unique=True).map(lambda values: tuple(sorted(values)))


@given(VALUES, SCALES, BOUNDS)
def test_no_bucket_counts_a_value_above_its_bound(values: list[float], scale: int, bounds: tuple[float, ...]) -> None:
    totals = Bounds(bounds).totals(filled(values, scale))
    assert totals == sorted(totals)
    assert totals[-1] == len(values)
    for bound, total in zip(bounds, totals, strict=False):
        assert total <= sum(value <= bound + abs(bound) * 1e-9 for value in values)


@given(VALUES, SCALES, BOUNDS)
def test_a_value_counts_at_most_one_bucket_of_its_source_too_high(
    values: list[float], scale: int, bounds: tuple[float, ...]
) -> None:
    totals = Bounds(bounds).totals(filled(values, scale))
    for bound, total in zip(bounds, totals, strict=False):
        surely = bound / width(scale) if bound > 0 else bound * width(scale)
        assert total >= sum(value <= surely for value in values)


@pytest.mark.parametrize("unit", UNITS)
@given(values=st.lists(st.floats(1e-9, 1e9), max_size=40), scale=st.integers(3, 12))
def test_the_default_bounds_are_edges_of_finer_histograms_so_counts_are_exact(
    unit: str, values: list[float], scale: int
) -> None:
    bounds = default_bounds(unit)
    for bound, total in zip(bounds.values, bounds.totals(filled(values, scale)), strict=False):
        slack = bound * 1e-9  # of the logarithm in `filled`
        assert (
            sum(value < bound - slack for value in values) <= total <= sum(value <= bound + slack for value in values)
        )


@pytest.mark.parametrize("unit", UNITS)
def test_the_default_bounds_are_few_ascending_and_begin_at_zero(unit: str) -> None:
    values = default_bounds(unit).values
    assert values[0] == 0
    assert all(low < high for low, high in pairwise(values))
    assert len(values) <= 100


def test_steps_of_a_training_have_four_bounds_for_each_power_of_two() -> None:
    seconds = [value for value in default_bounds("s").values if 0.001 <= value <= 10]
    assert {round(math.log2(high / low), 12) for low, high in pairwise(seconds)} == {0.25}


def test_zeros_and_negative_values_count_at_the_bound_zero() -> None:
    bounds = default_bounds("s")
    assert bounds.totals(ExponentialBuckets(scale=0, zero_count=2, negative={3: 1}))[0] == 3


def test_a_zero_bucket_counts_at_the_first_bound_that_is_not_below_its_threshold() -> None:
    buckets = ExponentialBuckets(scale=0, zero_threshold=4.0, zero_count=7, positive={3: 1})
    assert Bounds((1.0, 4.0, 8.0)).totals(buckets) == [0, 7, 7, 8]


def test_edges_beyond_the_range_of_floats_count_in_the_last_bucket() -> None:
    assert Bounds((1.0,)).totals(ExponentialBuckets(scale=-10, positive={0: 1, 1: 2})) == [0, 3]


def test_counts_move_to_the_first_bound_that_is_not_below_their_own() -> None:
    assert Bounds((1.0, 2.0, 4.0)).moved(Bounds((0.5, 1.0, 1.5, 5.0)), [1, 2, 3, 4, 5]) == [3, 3, 0, 9]


def test_equal_bounds_are_one_object() -> None:
    assert bounds_of((1.0, 2.5)) is bounds_of((1.0, 2.5))


@given(st.floats(0, allow_nan=False))
def test_the_text_of_a_bound_is_that_of_go(value: float) -> None:
    assert bound_text(value) == floatToGoString(value)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("value", "text"), [(-2097152.0, "-2.097152e+06"), (-0.5, "-0.5"), (1e-5, "1e-05"), (7, "7.0")]
)
def test_texts_of_bounds(value: float, text: str) -> None:
    assert bound_text(value) == text
