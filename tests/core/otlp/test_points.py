"""Points and metrics encode exactly as protobuf does."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.otlp.points import (
    LARGEST_INTEGER,
    Attributes,
    Descriptor,
    MetricKind,
    Period,
    Scope,
    Series,
    Temporality,
    encode_metric,
    encode_number_point,
    encode_point_attributes,
    encode_resource,
    encode_resource_metrics,
    key_values,
)
from otel_zernel.protobuf import delimited
from otel_zernel_libraries.arrays import KnownSeries, encode_number_points

CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
SCOPE = Scope("tests", "1.2.3")
TIMES = st.integers(0, 2**64 - 1)
ATTRIBUTES = st.dictionaries(
    st.text(max_size=20),
    st.one_of(st.text(max_size=200), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.lists(st.text())),
    max_size=5,
)
DESCRIPTORS = st.builds(
    Descriptor, st.text(max_size=40), st.text(max_size=5), st.sampled_from(["gauge", "sum", "up_down"]), st.text()
)


def expected(
    resource: Attributes, descriptor: Descriptor, attributes: Attributes, values: list[float], time: int, start: int
) -> MetricsData:
    """The same message built by protobuf."""
    points = [
        NumberDataPoint(
            attributes=key_values(attributes), start_time_unix_nano=start, time_unix_nano=time, as_double=value
        )
        for value in values
    ]
    metric = Metric(name=descriptor.name, unit=descriptor.unit, description=descriptor.description)
    if descriptor.kind == "gauge":
        metric.gauge.CopyFrom(Gauge(data_points=points))
    else:
        monotonic = descriptor.kind == "sum"
        metric.sum.CopyFrom(Sum(data_points=points, aggregation_temporality=CUMULATIVE, is_monotonic=monotonic))
    data = MetricsData()
    of = data.resource_metrics.add(resource=Resource(attributes=key_values(resource)))
    of.scope_metrics.add(scope=InstrumentationScope(name=SCOPE.name, version=SCOPE.version), metrics=[metric])
    return data


@given(
    ATTRIBUTES, DESCRIPTORS, ATTRIBUTES, st.floats(allow_nan=False), st.integers(0, 2**64 - 1), st.integers(0, 2**63)
)
def test_a_known_series_encodes_as_protobuf_does(
    resource: Attributes, descriptor: Descriptor, attributes: Attributes, value: float, time: int, start: int
) -> None:
    series = Series(encode_resource(resource), SCOPE, descriptor, encode_point_attributes(attributes))
    known = KnownSeries([series])
    known.encode(np.array([-1.0]), 5, 6)  # an earlier scrape must leave no trace
    encoded = MetricsData.FromString(known.encode(np.array([value]), time, start))
    assert str(encoded) == str(expected(resource, descriptor, attributes, [value], time, start))


@given(st.lists(st.floats(allow_nan=False), max_size=20), ATTRIBUTES)
def test_a_run_of_points_encodes_as_protobuf_does(values: list[float], attributes: Attributes) -> None:
    points = encode_number_points(
        encode_point_attributes(attributes), np.full(len(values), 7, np.uint64), np.array(values), 3
    )
    metric = encode_metric(Descriptor("m", "s", "sum"), points)
    encoded = MetricsData.FromString(encode_resource_metrics(encode_resource({"a": "b"}), SCOPE, [metric]))
    assert str(encoded) == str(expected({"a": "b"}, Descriptor("m", "s", "sum"), attributes, values, 7, 3))


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)), TIMES, TIMES, ATTRIBUTES)
def test_a_number_point_encodes_as_protobuf_does(value: float, start: int, end: int, attributes: Attributes) -> None:
    point = encode_number_point(encode_point_attributes(attributes), value, Period(start, end))
    expected = NumberDataPoint(attributes=key_values(attributes), start_time_unix_nano=start, time_unix_nano=end)
    if isinstance(value, int):
        expected.as_int = value
    else:
        expected.as_double = value
    assert [str(data_point) for data_point in Gauge.FromString(point).data_points] == [str(expected)]


def test_an_integer_too_large_for_otlp_becomes_the_largest() -> None:
    [point] = Gauge.FromString(encode_number_point(b"", 2**64, Period(1, 2))).data_points
    assert point.as_int == LARGEST_INTEGER == 2**63 - 1


@pytest.mark.parametrize("size", [1, 100, 127, 128, 16_000, 16_383, 16_384, 2_100_000])
def test_a_payload_of_any_size_is_read_back(size: int) -> None:
    assert Metric.FromString(delimited(1, b"m" * size)).name == "m" * size
    metric = ScopeMetrics.FromString(encode_metric(Descriptor("m" * size), delimited(1, b""))).metrics[0]
    assert metric == Metric(name="m" * size, gauge=Gauge(data_points=[NumberDataPoint()]))


@pytest.mark.parametrize("temporality", get_args(Temporality))
@pytest.mark.parametrize("kind", get_args(MetricKind))
def test_a_metric_encodes_as_protobuf_does(kind: MetricKind, temporality: Temporality) -> None:
    encoded = encode_metric(Descriptor("m", "s", kind, "d", temporality), delimited(1, b""))
    expected = Metric(name="m", unit="s", description="d")
    data = getattr(expected, "sum" if kind == "up_down" else kind)
    data.data_points.add()
    if kind not in ("gauge", "summary"):
        data.aggregation_temporality = {"delta": 1, "cumulative": 2}[temporality]
    if kind == "sum":
        data.is_monotonic = True
    assert ScopeMetrics.FromString(encoded) == ScopeMetrics(metrics=[expected])


def test_series_of_one_metric_share_one_metric_message() -> None:
    resource = encode_resource({"host.name": "node"})
    gpus = [Series(resource, SCOPE, Descriptor("hw.power", "W"), encode_point_attributes({"n": n})) for n in range(3)]
    data = MetricsData.FromString(KnownSeries(gpus).encode(np.array([1.0, 2.0, 3.0]), 1))
    metric = data.resource_metrics[0].scope_metrics[0].metrics[0]
    assert [point.as_double for point in metric.gauge.data_points] == [1.0, 2.0, 3.0]
    assert len(data.resource_metrics) == len(data.resource_metrics[0].scope_metrics[0].metrics) == 1


def test_a_scrape_needs_a_value_for_each_series() -> None:
    known = KnownSeries([Series(b"", SCOPE, Descriptor("m"))])
    with pytest.raises(ValueError, match="broadcast"):
        known.encode(np.array([1.0, 2.0]), 1)
