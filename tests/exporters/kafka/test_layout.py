"""The layout of messages is that of the OpenTelemetry Collector: keys, topics and pieces.

The choice of partitions.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from xxhash import xxh64_intdigest

from otel_zernel.batch import Batch
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_exporters.kafka import KafkaExporter
from otel_zernel_exporters.kafka.layout import EncodedPiece, MessageLayout, MessagePiece, attributes_hash, fitting
from otel_zernel_exporters.kafka.sending import PartitionChoice
from otel_zernel_libraries.clients.kafka.producing import MessageProducer, OutgoingMessage
from tests.core.parts import batch_of, values_of
from tests.otlp import logs, spans_in


def layout_of(**options: Any) -> MessageLayout:
    return MessageLayout(KafkaExporter.Config.model_validate(options))


def attribute(key: str, **value: Any) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(**value))


EVERY_TYPE = [
    attribute("s", string_value="text"),
    attribute("b", bool_value=True),
    attribute("i", int_value=-2),
    attribute("d", double_value=0.5),
    attribute("e"),
    attribute("y", bytes_value=b"\x00\x01"),
]
"""An array and a list follow below, since they nest."""
TEXT_OF_EVERY_TYPE = (
    b"\xf4b\xf8"
    b"\xf4d\xfb\x00\x00\x00\x00\x00\x00\xe0\x3f"
    b"\xf4e\xf5"
    b"\xf4i\xfa\xfe\xff\xff\xff\xff\xff\xff\xff"
    b"\xf4l\xfe\xf7x\xf9\xff"
    b"\xf4m\xfc\xf4k\xf7v\xfd"
    b"\xf4s\xf7text"
    b"\xf4y\xf6\x00\x01"
)
"""The attributes as the hash sees them: sorted by name, with a prefix before each name and value."""


def every_type() -> list[KeyValue]:
    array, nested = attribute("l"), attribute("m")
    array.value.array_value.values.extend([AnyValue(string_value="x"), AnyValue(bool_value=False)])
    nested.value.kvlist_value.values.append(attribute("k", string_value="v"))
    return [*EVERY_TYPE, array, nested]


def test_the_key_of_a_resource_has_the_bytes_of_otelcol() -> None:
    halves = (xxh64_intdigest(text) for text in (TEXT_OF_EVERY_TYPE, TEXT_OF_EVERY_TYPE + b"\xf3"))
    assert attributes_hash(every_type()) == b"".join(half.to_bytes(8, "little") for half in halves)
    assert attributes_hash(reversed(every_type())) == attributes_hash(every_type())
    assert attributes_hash([]) == bytes(16)


def test_the_key_of_one_attribute_is_known() -> None:
    assert attributes_hash([attribute("host.name", string_value="node")]).hex() == "9fecba6e528636ae451cca143fd4183a"


def of_host(host: str, *values: float) -> Batch:
    batch = batch_of(*values)
    batch.edit_metrics().resource_metrics[0].resource.attributes[0].value.string_value = host
    return batch


def test_a_batch_is_one_message_with_the_bytes_that_arrived() -> None:
    batch = Batch.join([of_host("a", 1.0), of_host("b", 2.0)])
    (piece,) = layout_of().pieces("metrics", batch)
    assert piece == MessagePiece("metrics", batch.bytes_of("metrics"), "otlp_metrics", None)


def test_each_resource_is_a_message_with_its_key() -> None:
    batch = Batch.join([of_host("a", 1.0), of_host("b", 2.0), of_host("a", 3.0)])
    pieces = layout_of(partition_metrics_by_resource_attributes=True).pieces("metrics", batch)
    assert [values_of([piece.batch()]) for piece in pieces] == [[1.0, 3.0], [2.0]]
    assert [piece.key for piece in pieces] == [
        attributes_hash([attribute("host.name", string_value=host)]) for host in ("a", "b")
    ]


def test_a_list_of_attributes_keeps_a_node_together_whatever_its_pods_are() -> None:
    batches = [of_host(host, value) for host, value in (("a", 1.0), ("a", 2.0), ("b", 3.0))]
    for number, batch in enumerate(batches):
        pod = batch.edit_metrics().resource_metrics[0].resource.attributes.add(key="k8s.pod.name")
        pod.value.string_value = str(number)
    pieces = layout_of(partition_metrics_by_resource_attributes=["host.name"]).pieces("metrics", Batch.join(batches))
    assert [values_of([piece.batch()]) for piece in pieces] == [[1.0, 2.0], [3.0]]
    assert pieces[0].key == attributes_hash([attribute("host.name", string_value="a")])


def test_each_trace_is_a_message_with_its_id_as_the_key() -> None:
    traces = TracesData()
    for resource in range(2):
        scope = traces.resource_spans.add(schema_url=f"r{resource}").scope_spans.add(schema_url="s")
        scope.spans.add(name=f"{resource}a", trace_id=b"\x0a" * 16)
        scope.spans.add(name=f"{resource}b", trace_id=b"\x0b" * 16)
    pieces = layout_of(partition_traces_by_id=True).pieces("traces", Batch(spans=traces))
    assert [piece.key for piece in pieces] == [b"0a" * 16, b"0b" * 16]
    for piece, letter in zip(pieces, "ab", strict=True):
        message = piece.batch().spans
        assert [resource.schema_url for resource in message.resource_spans] == ["r0", "r1"]
        names = [span.name for span in spans_in(message)]
        assert names == [f"0{letter}", f"1{letter}"]


def test_log_records_follow_their_trace_or_their_resource() -> None:
    batch = Batch(logs=logs(LogRecord(trace_id=b"\x01" * 16), LogRecord()))
    by_trace = layout_of(partition_logs_by_trace_id=True).pieces("logs", batch)
    assert [piece.key for piece in by_trace] == [b"01" * 16, b""]
    by_resource = layout_of(partition_logs_by_resource_attributes=True).pieces("logs", batch)
    assert [piece.key for piece in by_resource] == [bytes(16)]


def test_a_resource_goes_to_the_topic_of_its_attribute_if_it_names_one() -> None:
    batch = Batch.join([of_host("topic.a", 1.0), of_host("no topic!", 2.0), of_host("", 3.0)])
    pieces = layout_of(topic_from_attribute="host.name").pieces("metrics", batch)
    assert [(piece.topic, values_of([piece.batch()])) for piece in pieces] == [
        ("topic.a", [1.0]),
        ("otlp_metrics", [2.0, 3.0]),
    ]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(400, 5000))
def test_pieces_fit_and_have_every_point(sizes: list[int], limit: int) -> None:
    batch = Batch.join([of_host(f"host{number}", *map(float, range(size))) for number, size in enumerate(sizes)])
    pieces = list(fitting(MessagePiece("metrics", batch.bytes_of("metrics"), "t"), "otlp_proto", limit))
    encoded = [piece for piece in pieces if isinstance(piece, EncodedPiece)]
    assert len(encoded) == len(pieces)
    assert all(len(piece.value) <= limit for piece in encoded)
    assert values_of(piece.piece.batch() for piece in encoded) == values_of([batch])


@pytest.mark.parametrize("encoding", ["otlp_proto", "otlp_json"])
def test_sizes_are_those_of_the_encoding(encoding: Any) -> None:
    batch = of_host("a", *map(float, range(100)))
    pieces = list(fitting(MessagePiece("metrics", batch.bytes_of("metrics"), "t"), encoding, 2000))
    assert all(isinstance(piece, EncodedPiece) and len(piece.value) <= 2000 for piece in pieces)
    assert len(pieces) > 1


class GrowingTopics(MessageProducer):
    """Brokers whose topics come with their first message."""

    def __init__(self) -> None:
        super().__init__({}, make_context("exporters", "kafka"))
        self.partitions = 0

    async def partition_count(self, topic: str, within: float) -> int:
        return self.partitions


async def test_a_new_topic_uses_all_of_its_partitions_once_the_brokers_have_made_them() -> None:
    producer, clock = GrowingTopics(), FakeClock()
    choice = PartitionChoice("round_robin", 600.0, 1.0)
    messages = [OutgoingMessage("new", b"") for _ in range(3)]
    assert {message.partition for message in await choice.assign(messages, producer, clock)} == {-1}
    producer.partitions = 3
    assert {message.partition for message in await choice.assign(messages, producer, clock)} == {0, 1, 2}


async def test_messages_of_any_number_of_topics_get_partitions() -> None:
    producer = GrowingTopics()
    producer.partitions = 2
    messages = [OutgoingMessage(f"topic-{number}", b"") for number in range(5000)]
    assigned = await PartitionChoice("round_robin", 600.0, 1.0).assign(messages, producer, FakeClock())
    assert {message.partition for message in assigned} <= {-1, 0, 1}
    assert len(assigned) == 5000
