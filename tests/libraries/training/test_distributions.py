"""The values of a histogram point, whatever its buckets."""

import math

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, HistogramDataPoint

from otel_zernel_libraries.training import distribution_of


def test_each_value_is_the_middle_of_its_bucket() -> None:
    point = HistogramDataPoint(explicit_bounds=[1.0, 2.0, 4.0], bucket_counts=[0, 3, 5, 0], count=8)
    assert distribution_of(point) == {1.5: 3, 3.0: 5}


def test_no_value_is_outside_the_minimum_and_the_maximum() -> None:
    point = HistogramDataPoint(explicit_bounds=[10.0], bucket_counts=[2, 1], count=3, min=9.5, max=11.0)
    assert distribution_of(point) == {9.75: 2, 10.5: 1}


def test_values_above_the_last_bound_count_there_if_the_maximum_is_unknown() -> None:
    assert distribution_of(HistogramDataPoint(explicit_bounds=[1.0], bucket_counts=[0, 4], count=4)) == {1.0: 4}


def test_buckets_without_a_finite_middle_are_left_out() -> None:
    point = HistogramDataPoint(explicit_bounds=[1.0, math.inf], bucket_counts=[1, 2, 0], count=3)
    assert distribution_of(point) == {0.5: 1}


def test_fields_that_contradict_each_other_give_nothing() -> None:
    assert distribution_of(HistogramDataPoint(explicit_bounds=[1.0, 2.0], bucket_counts=[1], count=1)) == {}


def test_exponential_buckets_and_zeros_count() -> None:
    point = ExponentialHistogramDataPoint(scale=0, zero_count=2, count=5)
    point.positive.offset = 1
    point.positive.bucket_counts.extend([3])
    assert distribution_of(point) == {0.0: 2, 3.0: 3}


@pytest.mark.parametrize("scale", [-10, 20])
def test_any_scale_is_read(scale: int) -> None:
    point = ExponentialHistogramDataPoint(scale=scale, count=1)
    point.positive.bucket_counts.extend([1])
    assert distribution_of(point).total() <= 1
