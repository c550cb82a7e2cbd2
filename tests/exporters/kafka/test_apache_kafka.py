"""The limits of a topic of Apache Kafka: small points get through, and only one that cannot fit is lost."""

import asyncio
import logging
from collections import Counter
from itertools import chain
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch
from otel_zernel.testing import until
from otel_zernel_exporters.kafka import KafkaExporter
from tests.core.parts import batch_of
from tests.exporters.kafka.exporting import dropped_by, exporting, values_in
from tests.interop.kafka.broker import Broker
from tests.libraries.clients.kafka.mock_cluster import count_of, messages_in

POINTS_OF_A_BATCH = 20


async def export_concurrently(exporter: KafkaExporter, batches: int) -> None:
    """As the consumers of the queue do: the client joins the messages of a partition to one request."""
    numbers = iter(range(batches))

    async def consumer() -> None:
        for number in numbers:
            first = number * POINTS_OF_A_BATCH
            await exporter.export(batch_of(*map(float, range(first, first + POINTS_OF_A_BATCH))))

    await asyncio.gather(*(consumer() for _ in range(100)))


async def values_of_topic(kafka: Broker, topic: str, partitions: int) -> list[float]:
    count = await asyncio.to_thread(count_of, kafka.brokers, topic, partitions)
    return values_in(await asyncio.to_thread(messages_in, kafka.brokers, topic, count, partitions))


@pytest.mark.parametrize("partitioner", ["sticky_key", "round_robin"])
@pytest.mark.parametrize("acks", ["all", 1])
async def test_a_topic_with_a_lower_limit_loses_no_small_point(
    kafka: Broker, partitioner: str, acks: object, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic(partitions=2, max_message_bytes="10000")
    options: dict[str, Any] = {"record_partitioner": {partitioner: None}, "producer": {"required_acks": acks}}
    async with exporting(kafka.brokers, metrics={"topic": topic}, **options) as exporter:
        await export_concurrently(exporter, 2_000)
        assert dropped_by(exporter) == {}
    assert await values_of_topic(kafka, topic, 2) == [float(number) for number in range(40_000)]
    assert caplog.text.count(f"The broker refuses requests for {topic}") == 1


async def test_the_other_topics_go_on_with_many_messages_in_a_request(kafka: Broker) -> None:
    low, other = kafka.topic(max_message_bytes="10000"), kafka.topic()
    async with exporting(kafka.brokers, topic_from_attribute="topic") as exporter:
        batches = [batch_of(float(number)) for number in range(400)]
        for number, batch in enumerate(batches):
            resource = batch.edit_metrics().resource_metrics[0].resource
            resource.attributes.add(key="topic").value.string_value = low if number % 2 else other
        await asyncio.gather(*(exporter.export(batch) for batch in batches))
        assert dropped_by(exporter) == {}
        assert set(exporter._sending._lower_limits) == {low}
    assert await values_of_topic(kafka, low, 1) == [float(number) for number in range(1, 400, 2)]
    assert await values_of_topic(kafka, other, 1) == [float(number) for number in range(0, 400, 2)]


async def test_a_message_over_the_limit_of_the_topic_is_divided_down_to_the_point_that_cannot_fit(
    kafka: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic(max_message_bytes="10000")
    giant = batch_of(-1.0, name="giant")
    point = giant.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0]
    point.attributes.add(key="text").value.string_value = "x" * 20_000
    small = [float(number) for number in range(2_000)]
    async with exporting(kafka.brokers, metrics={"topic": topic}) as exporter:
        with caplog.at_level(logging.WARNING):
            await exporter.export(Batch.join([batch_of(*small), giant]))
        assert dropped_by(exporter) == {"too_large": 1}
    assert "Dropped a point of giant: its message of 2" in caplog.text
    assert await values_of_topic(kafka, topic, 1) == small


async def test_an_attempt_after_a_cancelled_one_does_not_send_all_messages_again(kafka: Broker) -> None:
    topic = kafka.topic(max_message_bytes="10000")
    traces = TracesData()
    spans = traces.resource_spans.add().scope_spans.add().spans
    for number in range(3_000):
        spans.add(name=str(number), trace_id=number.to_bytes(16), span_id=b"\x02" * 8)
    batch = Batch(spans=traces)
    async with exporting(kafka.brokers, traces={"topic": topic}, partition_traces_by_id=True) as exporter:
        attempt = asyncio.create_task(exporter.export(batch))
        await until(lambda: 0 < len(exporter._rest.get(batch, ())) < 3_000)
        attempt.cancel()
        await asyncio.gather(attempt, return_exceptions=True)
        left = len(exporter._rest[batch])
        await exporter.export(batch)
        assert dropped_by(exporter) == {}
    count = await asyncio.to_thread(count_of, kafka.brokers, topic, 1)
    messages = await asyncio.to_thread(messages_in, kafka.brokers, topic, count, 1)
    found = [TracesData.FromString(message.value() or b"") for message in messages]
    names = Counter(
        span.name
        for data in found
        for scope in chain(*(r.scope_spans for r in data.resource_spans))
        for span in scope.spans
    )
    assert len(names) == 3_000
    assert sum(names.values()) <= 3_000 + min(left, 500)
