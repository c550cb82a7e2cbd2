"""Number points read from their encoding equal those that protobuf reads."""

import struct

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Gauge, NumberDataPoint, Sum

from otel_zernel_processors.percentiles.intake.intake import number_runs

CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE

fixed64 = st.sampled_from([0, 1, 0x11, 0x1919191919191919, 0x2121212121212121, 2**64 - 1])
values = st.one_of(
    st.none(),
    st.tuples(st.just("as_double"), st.sampled_from([0.0, 1.5, -2.0, float("inf"), 1.2e-71])),
    st.tuples(st.just("as_int"), st.sampled_from([0, 1, -1, 0x2121212121212121, 2**63 - 1])),
)


@st.composite
def points(draw: st.DrawFn) -> NumberDataPoint:
    point = NumberDataPoint(
        start_time_unix_nano=draw(fixed64), time_unix_nano=draw(fixed64), flags=draw(st.integers(0, 1))
    )
    value = draw(values)
    if value:
        setattr(point, *value)
    for key in draw(st.lists(st.sampled_from("ab"), max_size=2)):
        point.attributes.add(key=key).value.string_value = key * draw(st.sampled_from([1, 1, 300]))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1]))):
        point.exemplars.add(as_double=1.0)
    return point


def read_with_protobuf(data: list[NumberDataPoint]) -> list[tuple[str, list[str], int, float]]:
    return [
        (point.WhichOneof("value") or "", [str(pair) for pair in point.attributes], point.flags, value)
        for point in data
        if point.HasField("as_double") or point.HasField("as_int")
        for value in [point.as_double if point.HasField("as_double") else float(point.as_int)]
    ]


@given(st.lists(st.tuples(points(), st.integers(1, 40)), max_size=8), st.booleans())
def test_all_points_are_read_in_order_with_value_attributes_and_flags(
    runs: list[tuple[NumberDataPoint, int]], of_sum: bool
) -> None:
    data = [point for point, times in runs for _ in range(times)]
    encoded = (
        Sum(data_points=data, aggregation_temporality=CUMULATIVE, is_monotonic=True)
        if of_sum
        else Gauge(data_points=data)
    )
    found = [
        ([str(pair) for pair in rest.attributes], rest.flags, value)
        for head, doubles in number_runs(encoded.SerializeToString())
        for rest in [NumberDataPoint.FromString(head)]
        for (value,) in struct.iter_unpack("<d", doubles)
    ]
    assert found == [row[1:] for row in read_with_protobuf(data)]


def test_a_long_run_of_one_series_is_one_read() -> None:
    gauge = Gauge()
    for number in range(1, 5001):
        point = gauge.data_points.add(time_unix_nano=number, as_double=number)
        point.attributes.add(key="pid").value.int_value = 7 if number <= 4000 else 8
    assert [len(doubles) // 8 for _, doubles in number_runs(gauge.SerializeToString())] == [4000, 1000]
