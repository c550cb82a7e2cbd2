"""Series of every kind of metric can end with a staleness point, and readers recognize it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    DataPointFlags,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ScopeMetrics,
)

from otel_zernel.batch import points
from otel_zernel.otlp.points import (
    Descriptor,
    MetricKind,
    encode_attributes,
    encode_metric,
    key_values,
)
from otel_zernel.otlp.staleness import encode_staleness, has_no_value, staleness_metric
from otel_zernel.protobuf import delimited

FLAG = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
ATTRIBUTES = {"process.pid": 7}
FIELDS: list[tuple[MetricKind, int]] = [
    ("gauge", 7),
    ("sum", 7),
    ("up_down", 7),
    ("histogram", 9),
    ("exponential_histogram", 1),
    ("summary", 7),
]


@pytest.mark.parametrize("attributes_first", [True, False])
@pytest.mark.parametrize(("kind", "attributes_field"), FIELDS)
def test_a_staleness_point_has_attributes_a_time_the_flag_and_nothing_else(
    kind: MetricKind, attributes_field: int, attributes_first: bool
) -> None:
    parts = [encode_attributes(ATTRIBUTES, attributes_field), encode_staleness(kind, 2**63 + 1)]
    point = delimited(1, b"".join(parts if attributes_first else reversed(parts)))
    [found] = points(ScopeMetrics.FromString(encode_metric(Descriptor("m", "", kind), point)).metrics[0])
    assert found == type(found)(attributes=key_values(ATTRIBUTES), time_unix_nano=2**63 + 1, flags=FLAG)
    assert has_no_value(found)


@given(st.integers(0, 2**32 - 1))
def test_only_the_flag_decides_whether_a_point_has_a_value(flags: int) -> None:
    assert has_no_value(NumberDataPoint(flags=flags)) == bool(flags & 1)


@pytest.mark.parametrize("kind", ["gauge", "sum", "histogram", "exponential_histogram", "summary"])
def test_the_staleness_metric_of_a_series_keeps_its_description_and_its_attributes(kind: str) -> None:
    metric = Metric(name="m", unit="s", description="d")
    data_points = getattr(metric, kind).data_points
    for pid in (7, 8):
        data_points.add(attributes=key_values({"process.pid": pid}), time_unix_nano=5)
    if kind == "sum":
        metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, 1  # type: ignore[assignment]  # delta
    stale = staleness_metric(metric, data_points[1])
    [point] = points(stale)
    assert point == type(point)(attributes=key_values({"process.pid": 8}), flags=FLAG)
    assert len(data_points) == 2, "the metric itself must not change"
    del data_points[:]
    del points(stale)[:]
    assert stale == metric


def test_a_histogram_without_values_is_no_staleness_point() -> None:
    assert not has_no_value(HistogramDataPoint(count=0))
