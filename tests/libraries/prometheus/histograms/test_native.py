"""Exponential histograms as native buckets: the same counts, at indexes of Prometheus."""

import pytest
from hypothesis import given

from otel_zernel_libraries.histograms.exponential import Counts
from otel_zernel_libraries.prometheus.histograms import ExponentialBuckets, native_buckets
from otel_zernel_libraries.prometheus.histograms.native import Side
from tests.libraries.prometheus.histograms.filled import SCALES, VALUES, filled


def counts(side: Side) -> Counts:
    """The non-empty buckets by Prometheus' index, read as the format defines it."""
    found: Counts = {}
    index = count = 0
    deltas = iter(side.deltas)
    for offset, length in side.spans:
        index += offset
        for _ in range(length):
            count += next(deltas)
            if count:
                found[index] = count
            index += 1
    assert next(deltas, None) is None
    return found


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
