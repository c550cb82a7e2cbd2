"""A number point read from its bytes has the same columns as one that is read field by field."""

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, NumberDataPoint

from otel_zernel_libraries.store.rows.points import has_only_attributes, number_row, plain_number

TIMES = st.integers(0, 2**64 - 1)
ATTRIBUTES = st.lists(st.builds(KeyValue, key=st.text(max_size=3), value=st.builds(AnyValue, int_value=st.just(1))))
VALUES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"as_double": st.floats()}),
    st.fixed_dictionaries({"as_int": st.integers(-(2**63), 2**63 - 1)}),
    st.just({}),
)


def bits(row: tuple[Any, ...]) -> list[Any]:
    """Columns that can be compared: NaN is not equal to itself."""
    return [struct.pack("<d", one) if isinstance(one, float) else one for one in row]


@given(start=TIMES, time=TIMES, value=VALUES, attributes=ATTRIBUTES)
def test_a_plain_number_has_the_columns_of_its_fields(
    start: int, time: int, value: dict[str, Any], attributes: list[KeyValue]
) -> None:
    point = NumberDataPoint(start_time_unix_nano=start, time_unix_nano=time, attributes=attributes, **value)
    plain = plain_number(point.SerializeToString())
    assert (plain is not None) == bool(time and value)
    if plain:
        rest, found, row = plain
        assert has_only_attributes(point, rest)
        assert (found, bits(row)) == (time, bits(number_row(point)))


@given(attributes=ATTRIBUTES, extra=st.sampled_from([{"flags": 1}, {"exemplars": [Exemplar(as_int=1)]}]))
def test_a_point_with_flags_or_exemplars_is_not_plain(attributes: list[KeyValue], extra: dict[str, Any]) -> None:
    point = NumberDataPoint(time_unix_nano=1, as_double=1.0, attributes=attributes, **extra)
    plain = plain_number(point.SerializeToString())
    assert plain is None or not has_only_attributes(point, plain[0])
