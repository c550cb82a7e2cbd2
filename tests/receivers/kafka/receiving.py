"""Receivers of Kafka for tests, and the offsets that a group has committed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from opentelemetry.metrics import Meter

from otel_zernel.clock import SystemClock
from otel_zernel.component import Emit
from otel_zernel.testing import Dropped, make_context
from otel_zernel_receivers.kafka import KafkaReceiver
from tests.background import in_background

METRICS = "otlp_metrics"


def receiver_of(brokers: list[str], *, meter: Meter | None = None, **options: Any) -> KafkaReceiver:
    # The mock cluster waits for the members of a group for almost the time of a session.
    settings = {"brokers": brokers, "initial_offset": "earliest", "session_timeout": "2s", **options}
    settings.setdefault("heartbeat_interval", "200ms")
    settings.setdefault("autocommit", {"interval": "100ms"})
    config = KafkaReceiver.Config.model_validate(settings)
    return KafkaReceiver(config, make_context("receivers", "kafka", clock=SystemClock(), meter=meter))


@asynccontextmanager
async def receiving(brokers: list[str], emit: Emit, **options: Any) -> AsyncIterator[KafkaReceiver]:
    """A running receiver. It is stopped at the end, as the collector stops it."""
    receiver = receiver_of(brokers, **options)
    async with in_background(receiver.run(emit)):
        yield receiver


def dropped_by(receiver: KafkaReceiver) -> dict[str, int]:
    """The lost records and items by reason."""
    assert isinstance(receiver.context.drop, Dropped)
    return dict(receiver.context.drop.counts)


def committed(brokers: list[str], topic: str = METRICS, partitions: int = 4, group: str = "otel-collector") -> int:
    """The sum of the committed offsets of a group."""
    consumer = Consumer({"bootstrap.servers": ",".join(brokers), "group.id": group})
    try:
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        return sum(max(0, place.offset) for place in consumer.committed(places, timeout=10))
    finally:
        consumer.close()
