"""An exporter of Kafka for tests, and the points in messages."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from confluent_kafka import Message
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import Dropped, make_context
from otel_zernel_exporters.kafka import KafkaExporter
from tests.core.parts import values_of

LEADER_ALONE = {"required_acks": 1}
"""The settings of a producer that is not idempotent. For an idempotent one, the client first waits for an id for a
second."""


def exporter_of(brokers: list[str], **options: Any) -> KafkaExporter:
    """With a long `timeout`, since the machine may be busy."""
    config = KafkaExporter.Config.model_validate({"brokers": brokers, "timeout": "60s", **options})
    return KafkaExporter(config, make_context("exporters", "kafka", clock=SystemClock()))


@asynccontextmanager
async def exporting(brokers: list[str], **options: Any) -> AsyncIterator[KafkaExporter]:
    async with exporter_of(brokers, **options) as exporter:
        yield exporter


def dropped_by(exporter: KafkaExporter) -> dict[str, int]:
    """The lost items by reason."""
    assert isinstance(exporter.context.drop, Dropped)
    return dict(exporter.context.drop.counts)


def metrics_of(messages: Iterable[Message]) -> list[MetricsData]:
    return [MetricsData.FromString(message.value() or b"") for message in messages]


def values_in(messages: Iterable[Message]) -> list[float]:
    """The values of all gauge points, sorted."""
    return sorted(values_of(Batch(metrics=metric) for metric in metrics_of(messages)))
