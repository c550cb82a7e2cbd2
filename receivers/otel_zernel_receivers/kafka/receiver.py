"""The kafka receiver: takes fetches from the thread of its consumer, and offers them to the pipelines."""

import asyncio
import importlib.util
from contextlib import AsyncExitStack

from otel_zernel.component import Emit, Receiver
from otel_zernel.errors import CannotStart
from otel_zernel.runtime.tasks import cancel
from otel_zernel_libraries.clients.kafka.properties import Properties, client_properties
from otel_zernel_libraries.clients.kafka.tokens import token_source
from otel_zernel_receivers.kafka.config import KafkaReceiverConfig
from otel_zernel_receivers.kafka.consumer_properties import consumer_properties
from otel_zernel_receivers.kafka.consuming import ConsumerThread
from otel_zernel_receivers.kafka.consumption import Consumption
from otel_zernel_receivers.kafka.dead_letters import DeadLetters
from otel_zernel_receivers.kafka.fetches import Fetch, Fetches
from otel_zernel_receivers.kafka.measuring import ConsumerMetrics
from otel_zernel_receivers.kafka.offering import Offering
from otel_zernel_receivers.kafka.topics import SharedTopic, Topics


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
