"""The properties of librdkafka for the consumer of the receiver."""

from collections.abc import Sequence
from typing import Final

from otel_zernel_libraries.clients.kafka.properties import Properties, milliseconds
from otel_zernel_receivers.kafka.config import KafkaReceiverConfig

_PREFETCHED_KB: Final = 16 << 10
"""KiB of records that the client fetches ahead, for all partitions together. librdkafka's default is 64 MiB."""
_LARGEST_MESSAGE: Final = 1_000_000
"""librdkafka's `message.max.bytes`, below which `fetch.max.bytes` must not be."""
_QUEUE_BACKOFF_MS: Final = 20
"""Time without fetches while the client holds that many. librdkafka's 1 s leaves the pipelines without work."""
_ANY: Final = 1_000_000_000
"""Bytes of an answer without a limit: about half of the most that librdkafka accepts."""
_DISCOVERY: Final = 30.0
"""Seconds after which new topics are found at the latest."""


def consumer_properties(config: KafkaReceiverConfig, ignored: Sequence[str] = ()) -> Properties:
    """The properties besides those of every client. `ignored` are patterns of topics that do not exist for it."""
    fetch = max(config.max_fetch_size or _ANY, _LARGEST_MESSAGE)
    properties: Properties = {
        "group.id": config.group_id,
        "auto.offset.reset": config.initial_offset,
        "session.timeout.ms": milliseconds(config.session_timeout),
        "heartbeat.interval.ms": milliseconds(config.heartbeat_interval),
        "max.poll.interval.ms": max(300_000, milliseconds(config.session_timeout)),
        "partition.assignment.strategy": ",".join(config.group_rebalance_strategies),
        "fetch.min.bytes": config.min_fetch_size,
        "fetch.max.bytes": fetch,
        "max.partition.fetch.bytes": config.max_partition_fetch_size,
        "fetch.queue.backoff.ms": _QUEUE_BACKOFF_MS,
        "fetch.wait.max.ms": milliseconds(config.max_fetch_wait),
        "receive.message.max.bytes": max(100_000_000, fetch + 1024),
        "queued.max.messages.kbytes": max(_PREFETCHED_KB, config.max_partition_fetch_size >> 10),
        "topic.metadata.refresh.interval.ms": milliseconds(min(config.metadata.refresh_interval, _DISCOVERY)),
        "enable.auto.offset.store": False,
        "enable.auto.commit": config.autocommit.enable,
        "auto.commit.interval.ms": milliseconds(config.autocommit.interval),
    }
    if config.group_instance_id:
        properties["group.instance.id"] = config.group_instance_id
    if ignored:
        properties["topic.blacklist"] = ",".join(ignored)
    return properties
