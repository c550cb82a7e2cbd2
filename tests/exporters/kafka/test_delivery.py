"""The delivery of messages: confirmed, repeated, split, or lost with a count.

The counts of sent messages.
"""

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel.batch import Batch
from otel_zernel.errors import Correctable, Permanent, Retryable
from otel_zernel.testing import until
from otel_zernel_exporters.kafka import KafkaExporter
from otel_zernel_exporters.kafka.sending import SentRecords
from otel_zernel_libraries.clients.kafka.producing import OutgoingMessage
from tests.core.parts import batch_of, every_signal
from tests.exporters.kafka.exporting import LEADER_ALONE, dropped_by, exporting, values_in
from tests.libraries.clients.kafka.mock_cluster import INIT_PRODUCER_ID, PRODUCE, MockCluster, count_of, messages_in

NOT_LEADER, TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED = 6, 29, 31


async def insist(exporter: KafkaExporter, batch: Batch) -> None:
    """Exports until the brokers take it. The client keeps their answers for a moment."""
    while True:
        try:
            return await exporter.export(batch)
        except Retryable:
            await asyncio.sleep(0.05)


async def test_a_message_is_the_bare_batch_in_the_topic_of_its_signal(cluster: MockCluster) -> None:
    batch = every_signal()
    async with exporting(cluster.brokers, producer=LEADER_ALONE) as exporter:
        await exporter.export(batch)
        for signal, topic in (("metrics", "otlp_metrics"), ("traces", "otlp_spans"), ("logs", "otlp_logs")):
            (message,) = await asyncio.to_thread(messages_in, cluster.brokers, topic, 1)
            assert message.value() == batch.bytes_of(signal)  # type: ignore[arg-type]
            assert message.key() is None
            assert message.headers() is None


async def test_export_ends_after_the_brokers_have_confirmed(cluster: MockCluster) -> None:
    """An error that passes is repeated by the client, without a second message."""
    cluster.fail_next(PRODUCE, NOT_LEADER, NOT_LEADER)
    async with exporting(cluster.brokers) as exporter:
        await exporter.export(batch_of(1.0))
        await exporter.export(batch_of(2.0))
        assert values_in(await asyncio.to_thread(messages_in, cluster.brokers, "otlp_metrics", 2)) == [1.0, 2.0]


async def test_it_starts_while_the_brokers_are_down_and_delivers_when_they_are_up(cluster: MockCluster) -> None:
    cluster.take_down()
    async with exporting(cluster.brokers, timeout="1s") as exporter:
        batch = batch_of(1.0, 2.0)
        with pytest.raises(Retryable, match="no broker confirmed the messages in time"):
            await exporter.export(batch)
        cluster.bring_up()
        await insist(exporter, batch)
        assert values_in(await asyncio.to_thread(messages_in, cluster.brokers, "otlp_metrics", 1)) == [1.0, 2.0]


CORRECTABLE = {
    17: "the broker refuses the name of the topic",
    44: "policy",
    76: "compression",
    TOPIC_AUTHORIZATION_FAILED: "the user may not use this topic: add an ACL",
}
"""The last one is remembered by the client for a moment."""


async def test_a_failure_that_somebody_can_correct_keeps_the_batch_unless_the_user_says_otherwise(
    cluster: MockCluster,
) -> None:
    cluster.create_topic("otlp_metrics", 1)
    async with exporting(cluster.brokers) as exporter:
        for code, words in CORRECTABLE.items():
            batch = batch_of(float(code))
            cluster.fail_next(PRODUCE, code)
            with pytest.raises(Correctable, match=f"(?i){words}") as caught:
                await exporter.export(batch)
            assert caught.value.code == str(code)
            await insist(exporter, batch)
        assert dropped_by(exporter) == {}
    async with exporting(cluster.brokers, retry_on_failure={"permanent_codes": [*CORRECTABLE]}) as exporter:
        for code, words in CORRECTABLE.items():
            cluster.fail_next(PRODUCE, code)
            with pytest.raises(Permanent, match=f"(?i){words}"):
                await exporter.export(batch_of(2.0))
    messages = await asyncio.to_thread(messages_in, cluster.brokers, "otlp_metrics", len(CORRECTABLE))
    assert values_in(messages) == sorted(map(float, CORRECTABLE))


@pytest.mark.parametrize("code", [32, 87])
async def test_a_message_that_the_broker_finds_invalid_is_dropped(cluster: MockCluster, code: int) -> None:
    cluster.create_topic("otlp_metrics", 1)
    cluster.fail_next(PRODUCE, code)
    async with exporting(cluster.brokers) as exporter:
        with pytest.raises(Permanent):
            await exporter.export(batch_of(1.0))


async def test_a_right_that_is_withdrawn_from_every_chosen_topic_costs_nothing(cluster: MockCluster) -> None:
    topics = ("metrics_of_a", "metrics_of_b")
    for topic in topics:
        cluster.create_topic(topic, 1)
        cluster.fail_topic(topic, TOPIC_AUTHORIZATION_FAILED)
    batch = Batch.join([_with_topic(1.0, topics[0]), _with_topic(2.0, topics[1])])
    async with exporting(cluster.brokers, topic_from_attribute="topic") as exporter:
        with pytest.raises(Correctable, match="add an ACL for the topic"):
            await exporter.export(batch)
        for topic in topics:
            cluster.fail_topic(topic, 0)
        await insist(exporter, batch)
        assert dropped_by(exporter) == {}
        for topic, value in zip(topics, (1.0, 2.0), strict=True):
            assert values_in(await asyncio.to_thread(messages_in, cluster.brokers, topic, 1)) == [value]


async def test_a_batch_over_the_limit_is_split_and_loses_nothing(cluster: MockCluster) -> None:
    values = [float(number) for number in range(500)]
    async with exporting(cluster.brokers, producer={**LEADER_ALONE, "max_message_bytes": 4000}) as exporter:
        await exporter.export(batch_of(*values))
        assert dropped_by(exporter) == {}
    messages = await asyncio.to_thread(
        messages_in, cluster.brokers, "otlp_metrics", lambda found: len(values_in(found)) == 500
    )
    assert values_in(messages) == values
    assert max(len(message.value() or b"") for message in messages) <= 4000
    assert len(messages) < 20


async def test_only_a_point_that_cannot_fit_is_dropped_and_named(
    cluster: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    giant = batch_of(7.0, name="giant")
    metrics = giant.edit_metrics()
    point = metrics.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0]
    point.attributes.add(key="text").value.string_value = "x" * 5000
    async with exporting(cluster.brokers, producer={**LEADER_ALONE, "max_message_bytes": 4000}) as exporter:
        with caplog.at_level(logging.WARNING):
            await exporter.export(Batch.join([batch_of(1.0), giant, batch_of(2.0)]))
        assert dropped_by(exporter) == {"too_large": 1}
    assert "Dropped a point of giant: its message of 5" in caplog.text
    messages = await asyncio.to_thread(messages_in, cluster.brokers, "otlp_metrics", 2)
    assert values_in(messages) == [1.0, 2.0]


async def test_a_retry_sends_only_the_messages_that_are_not_confirmed(cluster: MockCluster) -> None:
    cluster.create_topic("metrics_of_a", 1)
    options = {"topic_from_attribute": "topic"}
    batch = Batch.join([_with_topic(1.0, "metrics_of_a"), _with_topic(2.0, "metrics_of_b")])
    async with exporting(cluster.brokers, **options) as exporter:
        messages = await exporter._messages(batch)
        assert [message.topic for message in messages] == ["metrics_of_a", "metrics_of_b"]
        exporter._rest[batch] = messages[1:]
        await exporter.export(batch)
        found = await asyncio.to_thread(messages_in, cluster.brokers, "metrics_of_b", 1)
        assert values_in(found) == [2.0]
        assert await asyncio.to_thread(count_of, cluster.brokers, "metrics_of_a", 1) == 0


async def test_a_topic_that_is_refused_costs_its_own_points_alone(
    cluster: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("closed", 1)
    cluster.fail_topic("closed", TOPIC_AUTHORIZATION_FAILED)
    batch = Batch.join([_with_topic(1.0, "open"), _with_topic(2.0, "closed")])
    async with exporting(cluster.brokers, producer=LEADER_ALONE, topic_from_attribute="topic") as exporter:
        with caplog.at_level(logging.WARNING):
            await exporter.export(batch)
        assert dropped_by(exporter) == {"refused_by_broker": 1}
        assert values_in(await asyncio.to_thread(messages_in, cluster.brokers, "open", 1)) == [1.0]
    assert "Dropped 1 items of 1 messages for closed: the user may not use this topic" in caplog.text


async def test_a_batch_larger_than_the_queue_of_the_client_waits_for_room(cluster: MockCluster) -> None:
    values = [float(number) for number in range(100_000)]
    producer = {**LEADER_ALONE, "max_buffered_mib": 1, "max_message_bytes": 100_000}
    async with exporting(cluster.brokers, producer=producer) as exporter:
        await exporter.export(batch_of(*values))
    count = await asyncio.to_thread(count_of, cluster.brokers, "otlp_metrics")
    assert values_in(await asyncio.to_thread(messages_in, cluster.brokers, "otlp_metrics", count)) == values


def _with_topic(value: float, topic: str) -> Batch:
    batch = batch_of(value)
    batch.edit_metrics().resource_metrics[0].resource.attributes.add(key="topic").value.string_value = topic
    return batch


async def test_damaged_data_cost_a_batch_and_one_sentence(cluster: MockCluster) -> None:
    damaged = Batch.encoded("metrics", b"\x0a\x05damage", 1)
    options = {"partition_metrics_by_resource_attributes": True}
    async with exporting(cluster.brokers, **options) as exporter:
        with pytest.raises(Permanent, match="the batch is not valid OTLP"):
            await exporter.export(damaged)


async def test_after_a_fatal_error_the_next_attempt_has_a_new_producer(cluster: MockCluster) -> None:
    """Without the right to write idempotently, the client ends itself for good."""
    cluster.fail_next(INIT_PRODUCER_ID, CLUSTER_AUTHORIZATION_FAILED)
    batch = batch_of(1.0)
    async with exporting(cluster.brokers) as exporter:
        with pytest.raises(Retryable, match="add an ACL for the cluster"):
            await exporter.export(batch)
        await exporter.export(batch)
        assert values_in(await asyncio.to_thread(messages_in, cluster.brokers, "otlp_metrics", 1)) == [1.0]


@pytest.mark.parametrize("kind", ["round_robin", "least_backup"])
async def test_messages_are_spread_over_all_partitions(cluster: MockCluster, kind: str) -> None:
    cluster.create_topic("otlp_metrics", 3)
    async with exporting(cluster.brokers, producer=LEADER_ALONE, record_partitioner={kind: None}) as exporter:
        for number in range(6):
            await exporter.export(batch_of(float(number)))
        messages = await asyncio.to_thread(messages_in, cluster.brokers, "otlp_metrics", 6, 3)
    assert Counter(message.partition() for message in messages) == {0: 2, 1: 2, 2: 2}


async def test_a_key_goes_to_the_partition_of_otelcols_hash(cluster: MockCluster) -> None:
    """Sarama takes FNV-1a of the key as a signed number, without its sign, modulo the number of partitions."""
    batch = Batch.join([_with_topic(float(number), f"value{number}") for number in range(20)])
    async with exporting(
        cluster.brokers, producer=LEADER_ALONE, partition_metrics_by_resource_attributes=True
    ) as exporter:
        await exporter.export(batch)
        messages = await asyncio.to_thread(messages_in, cluster.brokers, "otlp_metrics", 20)
    assert [message.partition() for message in messages] == [_sarama(message.key() or b"", 4) for message in messages]
    assert len({message.partition() for message in messages}) > 1


def _sarama(key: bytes, partitions: int) -> int:
    hash_ = 0x811C9DC5
    for byte in key:
        hash_ = (hash_ ^ byte) * 0x01000193 & 0xFFFFFFFF
    signed = hash_ - (1 << 32) if hash_ >= 1 << 31 else hash_
    return abs(signed) % partitions


async def test_a_cancelled_export_counts_an_oversized_point_once(cluster: MockCluster) -> None:
    """A timeout of `sending_queue` cancels an export, and a retry follows."""
    large = batch_of(1.0, name="n" * 5000)
    async with exporting(cluster.brokers, producer={**LEADER_ALONE, "max_message_bytes": 4000}) as exporter:
        batch = Batch.join([batch_of(2.0), large])
        cluster.take_down()
        export = asyncio.create_task(exporter.export(batch))
        await until(lambda: dropped_by(exporter))
        export.cancel()
        await asyncio.gather(export, return_exceptions=True)
        cluster.bring_up()
        await insist(exporter, batch)
        assert dropped_by(exporter) == {"too_large": 1}


def test_topics_that_data_choose_do_not_make_series_without_end() -> None:
    reader = InMemoryMetricReader()
    sent = SentRecords(MeterProvider([reader]).get_meter("test"))
    for number in range(1000):
        sent.count([OutgoingMessage(f"topic-{number}", b"", None, [], source=None)], ())
    sent.count([OutgoingMessage("topic-0", b"", None, [], source=None)], ())
    data: Any = reader.get_metrics_data()
    points = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    counts = {point.attributes["topic"]: point.value for point in points}
    assert len(counts) == 201
    assert (counts["topic-0"], counts["topic-1"], counts["_OTHER"]) == (2, 1, 800)
