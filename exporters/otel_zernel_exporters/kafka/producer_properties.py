"""The properties of librdkafka for the producer of the exporter."""

from typing import Final

from otel_zernel_exporters.kafka.config import KafkaExporterConfig
from otel_zernel_libraries.clients.kafka.properties import Properties, milliseconds

_PARTITIONERS: Final = {"sarama_compat": "fnv1a_random", "murmur2": "murmur2_random"}
"""Both place keys as otelcol's partitioners do, and messages without a key at random."""
_FIRST: Final = 1.0
"""Seconds before the end of an attempt at which the client gives up: it looks once a second. So its answer comes before
`timeout`, and a repetition does not meet the messages of the former attempt."""


def producer_properties(config: KafkaExporterConfig) -> Properties:
    """The properties besides those of every client."""
    producer = config.producer
    limit = max(config.timeout - _FIRST, config.timeout / 2)
    properties: Properties = {
        "acks": producer.required_acks,
        "enable.idempotence": producer.required_acks == -1,
        "compression.type": producer.compression,
        "compression.level": producer.compression_params.level,
        "message.max.bytes": producer.max_message_bytes,
        "batch.size": min(1_000_000, producer.max_message_bytes),
        "linger.ms": milliseconds(producer.linger),
        "message.timeout.ms": milliseconds(limit),
        "queue.buffering.max.kbytes": max(producer.max_buffered_mib << 10, 2 * producer.max_message_bytes >> 10),
        "partitioner": _PARTITIONERS[config.record_partitioner.hasher],
        "allow.auto.create.topics": producer.allow_auto_topic_creation,
    }
    if producer.flush_max_messages:
        properties["batch.num.messages"] = producer.flush_max_messages
    return properties
