"""The numbers of sums and gauges, with all their attributes.

The values of a histogram point, whatever its buckets.
"""

import math

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    DataPointFlags,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
)

from otel_zernel.otlp.points import AttributeValue, key_values
from otel_zernel_libraries.training.durations import distribution_of
from otel_zernel_libraries.training.points import numbers_of, scalars_of


def test_a_sum_and_a_gauge_have_numbers() -> None:
    total, gauge = Metric(), Metric()
    total.sum.data_points.add(as_int=3, time_unix_nano=5, attributes=key_values({"a": 1}))
    gauge.gauge.data_points.add(as_double=0.5)
    (first,), (second,) = numbers_of(total, {"host.name": "n"}), numbers_of(gauge, {})
    assert (first.value, first.time_ns, first.text("a"), first.text("b")) == (3, 5, "1", "")
    assert first.resource == {"host.name": "n"}
    assert second.value == 0.5


@pytest.mark.parametrize(
    "point",
    [
        NumberDataPoint(as_double=1.0, flags=DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK),
        NumberDataPoint(as_double=math.nan),
        NumberDataPoint(as_double=-math.inf),
    ],
)
def test_a_point_without_a_usable_number_has_none(point: NumberDataPoint) -> None:
    metric = Metric()
    metric.gauge.data_points.append(point)
    assert [number.value for number in numbers_of(metric, {})] == [None]


def test_lists_are_no_scalars() -> None:
    lists = KeyValue(key="l", value=AnyValue(array_value=ArrayValue()))
    scalars: dict[str, AttributeValue] = {"s": "x", "i": 1, "d": 0.5, "b": True}
    assert scalars_of([*key_values(scalars), lists]) == scalars


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
