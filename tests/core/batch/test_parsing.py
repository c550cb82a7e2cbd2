"""A large message that is parsed in pieces is the message that protobuf parses at once."""

from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError as ProtobufDecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, MetricsData, NumberDataPoint, Sum

from otel_zernel.batch import SIGNALS, Batch, Signal
from otel_zernel.batch.parsing import LARGE, parse
from otel_zernel.batch.signals import MESSAGE_TYPES
from otel_zernel.errors import DecodeError
from otel_zernel.otlp.points import key_values
from otel_zernel.protobuf import encode_field
from tests.core.otlp.test_json_decoding import any_message

PIECES = st.sampled_from([1, 5, 20, 100, 1000])


@pytest.mark.parametrize("signal", SIGNALS)
@given(data=st.data(), piece=PIECES)
def test_every_message_is_the_same_in_pieces(signal: Signal, data: st.DataObject, piece: int) -> None:
    encoded = data.draw(any_message(signal)).SerializeToString(deterministic=True)
    parsed = parse(MESSAGE_TYPES[signal], encoded, 0, piece)
    assert parsed.SerializeToString(deterministic=True) == encoded


@pytest.mark.parametrize("signal", SIGNALS)
@given(data=st.data(), piece=PIECES)
def test_a_damaged_message_is_refused_or_the_same(signal: Signal, data: st.DataObject, piece: int) -> None:
    encoded = bytearray(data.draw(any_message(signal)).SerializeToString())
    if encoded:
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    parsed = None
    with suppress(DecodeError, ProtobufDecodeError):
        parsed = parse(MESSAGE_TYPES[signal], bytes(encoded), 0, piece)
    if parsed is not None:
        with suppress(ProtobufDecodeError):  # protobuf also refuses what is nested too deeply
            whole = MESSAGE_TYPES[signal].FromString(bytes(encoded))
            assert parsed.SerializeToString(deterministic=True) == whole.SerializeToString(deterministic=True)


@pytest.mark.parametrize("piece", [1, 10_000])
def test_the_last_kind_of_data_counts_and_parts_of_one_kind_are_joined(piece: int) -> None:
    points = [NumberDataPoint(as_int=number) for number in range(100)]
    gauge, total = (Metric(gauge=Gauge(data_points=points)), Metric(sum=Sum(data_points=points, is_monotonic=True)))
    metric = b"".join(one.SerializeToString() for one in (gauge, total, total))
    encoded = encode_field(1, encode_field(2, encode_field(2, metric)))
    parsed = parse(MetricsData, encoded, 0, piece)
    assert parsed == MetricsData.FromString(encoded)
    assert len(parsed.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points) == 200


def test_a_large_batch_is_read_as_it_was_sent() -> None:
    attributes = key_values({"host": "a", "text": "b" * 100})
    points = [NumberDataPoint(as_double=number, attributes=attributes) for number in range(10_000)]
    message = MetricsData()
    message.resource_metrics.add().scope_metrics.add().metrics.add(name="a").gauge.data_points.extend(points)
    encoded = message.SerializeToString()
    assert len(encoded) > LARGE
    assert Batch.from_bytes(metrics=encoded).metrics == message
    with pytest.raises(DecodeError):
        _ = Batch.encoded("metrics", encoded[:-1], 10_000).metrics
