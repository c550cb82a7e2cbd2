"""The numbers of sums and gauges, with all their attributes."""

import math

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags, Metric, NumberDataPoint

from otel_zernel.otlp.points import AttributeValue, key_values
from otel_zernel_libraries.training import numbers_of, scalars_of


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
    assert [one.value for one in numbers_of(metric, {})] == [None]


def test_lists_are_no_scalars() -> None:
    lists = KeyValue(key="l", value=AnyValue(array_value=ArrayValue()))
    scalars: dict[str, AttributeValue] = {"s": "x", "i": 1, "d": 0.5, "b": True}
    assert scalars_of([*key_values(scalars), lists]) == scalars
