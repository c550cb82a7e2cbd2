"""The kafka receiver: takes fetches from the thread of its consumer, and offers them to the pipelines."""

import asyncio
import importlib.util
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from otel_zernel.component import Emit, Receiver
from otel_zernel.errors import CannotStart
from otel_zernel.runtime.tasks import cancel
from otel_zernel_libraries.clients.kafka.properties import Properties, client_properties, milliseconds
from otel_zernel_libraries.clients.kafka.tokens import token_source
from otel_zernel_receivers.kafka.config import KafkaReceiverConfig
from otel_zernel_receivers.kafka.consuming import ConsumerThread
from otel_zernel_receivers.kafka.consumption import Consumption
from otel_zernel_receivers.kafka.dead_letters import DeadLetters
from otel_zernel_receivers.kafka.fetches import Fetch, Fetches
from otel_zernel_receivers.kafka.measuring import ConsumerMetrics
from otel_zernel_receivers.kafka.offering import Offering
from otel_zernel_receivers.kafka.topics import SharedTopic, Topics

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


class KafkaReceiver(Receiver):
    """Reads OTLP from topics of Kafka. Commits offsets only after the pipelines have taken the records."""

    Config = KafkaReceiverConfig
    stability = "beta"
    config: KafkaReceiverConfig

    @classmethod
    def missing(cls) -> str | None:
        if importlib.util.find_spec("confluent_kafka"):
            return None
        return "the kafka receiver needs confluent-kafka: pip install 'otel-zernel[kafka]'"

    async def run(self, emit: Emit) -> None:
        """Reads until cancelled."""
        if sentence := self.missing():
            raise CannotStart(f"{self.context.path}: {sentence}")
        topics = self._topics()
        properties = await self._properties()
        own = consumer_properties(self.config, topics.ignored)
        fetches = Fetches(self.config.partition_processing.max_buffered_batches)
        consumption = Consumption(self.config, topics, fetches, ConsumerMetrics(self.context), self.context)
        arrived: asyncio.Queue[Fetch] = asyncio.Queue()
        dead_letters = DeadLetters(self.config.dead_letter_topic, properties, consumption.metrics, self.context)
        offering = Offering(consumption, emit, dead_letters)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(dead_letters.close)
            consumer = ConsumerThread(consumption, {**properties, **own}, arrived.put_nowait)
            stack.push_async_callback(consumer.stop)
            consumer.start()
            taking = asyncio.create_task(offering.run(arrived), name=f"{self.context.path} pipelines")
            stack.push_async_callback(cancel, taking)
            await asyncio.wait({taking, consumer.failed}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (consumer.failed, taking):
                if ended.done():
                    ended.result()

    def _topics(self) -> Topics:
        try:
            return Topics(self.config, self.context.signals)
        except SharedTopic as error:
            raise CannotStart(f"{self.context.path}: {error}") from error

    async def _properties(self) -> Properties:
        """The properties of its clients."""
        properties = await asyncio.to_thread(client_properties, self.config, self.context.path)
        token = token_source(self.config, self.context)
        return {**properties, "oauth_cb": token} if token else properties
