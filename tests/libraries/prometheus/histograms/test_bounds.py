"""Classic bounds: where values count, and the text of `le`.

Exponential histograms: edges that are the same at every scale, and sums that lose no value.

Exponential histograms as native buckets: the same counts, at indexes of Prometheus.
"""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint
from prometheus_client.utils import floatToGoString

from otel_zernel_libraries.histograms.exponential import Counts
from otel_zernel_libraries.prometheus.histograms import (
    Bounds,
    bound_text,
    bounds_of,
    default_bounds,
    native_buckets,
)
from otel_zernel_libraries.prometheus.histograms.exponential import ExponentialBuckets, edge
from otel_zernel_libraries.prometheus.histograms.native import Side
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


def counts(side: Side) -> Counts:
    """The non-empty buckets by Prometheus' index, read as the format defines it."""
    by_bucket: Counts = {}
    index = count = 0
    deltas = iter(side.deltas)
    for offset, length in side.spans:
        index += offset
        for _ in range(length):
            count += next(deltas)
            if count:
                by_bucket[index] = count
            index += 1
    assert next(deltas, None) is None
    return by_bucket


@given(VALUES, SCALES)
def test_every_bucket_keeps_its_count_one_index_higher(values: list[float], scale: int) -> None:
    histogram = filled(values, scale)
    native = native_buckets(histogram)
    assert native is not None
    coarse = histogram.at_scale(min(scale, 8))
    assert native.schema == min(scale, 8)
    assert native.zero_count == histogram.zero_count
    assert counts(native.positive) == {index + 1: count for index, count in coarse.positive.items()}
    assert counts(native.negative) == {index + 1: count for index, count in coarse.negative.items()}


def test_short_gaps_are_counts_of_zero_and_long_ones_begin_a_span() -> None:
    native = native_buckets(ExponentialBuckets(scale=0, positive={-5: 1, -2: 4, 1: 2, 5: 3}))
    assert native is not None
    assert native.positive == Side([(-4, 7), (3, 1)], [1, -1, 0, 4, -4, 0, 2, 1])


@pytest.mark.parametrize(("scale", "schema"), [(20, 8), (8, 8), (-4, -4)])
def test_the_schema_is_the_scale_and_at_most_8(scale: int, schema: int) -> None:
    native = native_buckets(ExponentialBuckets(scale=scale, positive={0: 1}))
    assert native is not None
    assert native.schema == schema


def test_scales_below_minus_4_have_no_schema() -> None:
    assert native_buckets(ExponentialBuckets(scale=-5, positive={0: 1})) is None


def test_an_empty_histogram_is_native_by_its_zero_threshold() -> None:
    native = native_buckets(ExponentialBuckets())
    assert native is not None
    assert native.zero_threshold > 0


def test_buckets_within_the_zero_bucket_are_added_to_it() -> None:
    buckets = ExponentialBuckets(
        0, zero_threshold=3.0, zero_count=1, positive={0: 2, 1: 4, 2: 8}, negative={1: 16, 3: 32}
    )
    native = native_buckets(buckets)
    assert native is not None
    assert (native.zero_threshold, native.zero_count) == (4.0, 1 + 2 + 4 + 16)
    assert (counts(native.positive), counts(native.negative)) == ({3: 8}, {4: 32})


def test_values_that_are_no_number_are_counted_and_are_in_no_bucket() -> None:
    point = ExponentialHistogramDataPoint(count=4, sum=math.nan)
    point.positive.bucket_counts[:] = [3]
    buckets = ExponentialBuckets.of(point)
    assert (buckets.count, buckets.positive, buckets.nan_count) == (4, {0: 3}, 1)
    total = buckets + ExponentialBuckets.of(point)
    assert (total.count, total.at_scale(-1).limited_to(1).count) == (8, 8)
    assert Bounds((1.0, 4.0)).totals(total) == [0, 6, 8]
    point.sum = 5.0
    assert ExponentialBuckets.of(point).count == 3  # without a NaN in the sum, the counts contradict each other
