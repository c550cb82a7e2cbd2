"""The kafka receiver: takes fetches from the thread of its consumer, and offers them to the pipelines."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Emit, PacedEmit, Receiver
from otel_zernel.errors import CannotStart, Refused, Rejected, Retryable
from otel_zernel.runtime.tasks import cancel
from otel_zernel_libraries.clients.kafka.failures import is_retriable, kafka_reason
from otel_zernel_libraries.clients.kafka.producing import MessageProducer, OutgoingMessage, UndeliveredMessage
from otel_zernel_libraries.clients.kafka.properties import Properties, client_properties, milliseconds
from otel_zernel_libraries.clients.kafka.tokens import token_source
from otel_zernel_libraries.extras import missing_packages
from otel_zernel_receivers.kafka.config import KafkaReceiverConfig
from otel_zernel_receivers.kafka.consuming import ConsumerThread, Consumption
from otel_zernel_receivers.kafka.fetches import Fetch, FetchedPart, Fetches, UndecodableRecord, batch_of_parts
from otel_zernel_receivers.kafka.measuring import ConsumerMetrics
from otel_zernel_receivers.kafka.topics import SharedTopic, Topics

_WAIT: Final = 1.0
"""Seconds before the repetition of a failed delivery."""
_LARGEST: Final = 100_000_000
"""Bytes of a message. The broker has the actual limit."""
_TIMEOUT_MS: Final = 10_000


class DeadLetters:
    """Sends undecodable records to the topic, or drops and counts them."""

    def __init__(self, topic: str, properties: Properties, metrics: ConsumerMetrics, context: Context) -> None:
        """Without a `topic`, records are dropped."""
        self._topic = topic
        self._metrics = metrics
        self._context = context
        own = {
            "acks": -1,
            "enable.idempotence": True,
            "message.max.bytes": _LARGEST,
            "message.timeout.ms": _TIMEOUT_MS,
            "queue.buffering.max.kbytes": 2 * _LARGEST >> 10,
        }
        self._producer = MessageProducer({**properties, **own}, context) if topic else None
        self._is_open = False

    async def close(self) -> None:
        if self._producer:
            await self._producer.close()

    async def take(self, records: Sequence[UndecodableRecord]) -> None:
        """Returns when each record is in the topic, or dropped and counted."""
        for record in records[:1]:
            self._context.logger.warning(
                "%d records are not OTLP, the first one at offset %d of %s[%d]: %s",
                len(records),
                record.offset,
                record.topic,
                record.partition,
                record.reason,
            )
        if self._producer is None:
            self._drop(records)
            return
        if not self._is_open:
            await self._producer.open()
            self._is_open = True
        await self._send(records, self._producer)

    async def _send(self, records: Sequence[UndecodableRecord], producer: MessageProducer) -> None:
        rest = [_message(record, self._topic) for record in records]
        while rest:
            try:
                undelivered = await producer.send(rest)
            except Retryable:
                await asyncio.sleep(_WAIT)
                continue
            lost = [message for message in undelivered if not is_retriable(message.error.code())]
            waiting = [message.message for message in undelivered if is_retriable(message.error.code())]
            self._lose(lost)
            for record in {id(message): message.source for message in rest}.values():
                if not any(message.message.source is record for message in undelivered):
                    self._metrics.undecodable(record.topic, "dead_letter", 1)
            if rest := waiting:
                self._context.logger.warning(
                    "The dead-letter topic %s accepts no records now, so the receiver waits: %s",
                    self._topic,
                    kafka_reason(undelivered[0].error),
                )
                await asyncio.sleep(_WAIT)

    def _lose(self, lost: Sequence[UndeliveredMessage]) -> None:
        if lost:
            self._context.logger.warning(
                "The dead-letter topic %s refuses a record: %s", self._topic, kafka_reason(lost[0].error)
            )
            self._drop([message.message.source for message in lost])

    def _drop(self, records: Sequence[UndecodableRecord]) -> None:
        if records:
            self._context.drop(len(records), "not_otlp")
        for record in records:
            self._metrics.undecodable(record.topic, "dropped", 1)


def _message(record: UndecodableRecord, topic: str) -> OutgoingMessage:
    """The record with its own headers, and those with its place."""
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset, "error": record.reason}
    headers = [*record.headers, *((f"kafka.{name}", str(value).encode()) for name, value in place.items())]
    return OutgoingMessage(topic, record.value, record.key, headers, source=record)


_LAST_CALL: Final = 0.4
"""Seconds that a batch in the pipelines has after a cancellation, so that it need not be read again."""


class Offering:
    """Offers the fetches to the pipelines, in order, until they are taken."""

    def __init__(self, consumption: Consumption, emit: Emit, dead_letters: DeadLetters) -> None:
        self._config = consumption.config
        self._fetches = consumption.fetches
        self._metrics = consumption.metrics
        self._context = consumption.context
        self._emit: Emit = emit.paced if isinstance(emit, PacedEmit) else emit
        self._dead_letters = dead_letters
        self._is_ending = False

    async def run(self, arrived: "asyncio.Queue[Fetch]") -> None:
        """Until cancelled."""
        while not self._is_ending:
            await self._take(await arrived.get())

    async def _take(self, fetch: Fetch) -> None:
        parts = await self._offer(fetch)
        undecodable = [record for part in parts for record in part.undecodable]
        if undecodable and self._is_ending:
            return
        if undecodable:
            await self._dead_letters.take(undecodable)
        if repeated := self._fetches.take(fetch, parts):
            self._metrics.repeated(repeated)
            self._context.logger.warning(
                "%d records were taken after their partitions had gone to another member, which reads them again",
                sum(part.records for part in repeated),
            )

    async def _offer(self, fetch: Fetch) -> list[FetchedPart]:
        """The parts that the pipelines have taken."""
        backoff = self._config.error_backoff
        began, wait = self._context.clock.monotonic(), backoff.initial_interval
        parts = self._fetches.offer(fetch)
        batch = batch_of_parts(fetch.signal, parts)
        while batch.item_count:
            items = batch.item_count  # afterwards the batch belongs to the pipelines
            try:
                await self._emitted(batch)
                return parts
            except Rejected as rejected:  # the items were counted where they were rejected
                self._context.logger.warning("Downstream rejected %d items: %s", items, rejected)
                return parts
            except Refused as refused:
                elapsed = self._context.clock.monotonic() - began
                if self._gives_up(elapsed):
                    self._context.drop(items, "refused")
                    return parts
                self._fetches.refused(parts)
                spread = wait * backoff.randomization_factor
                pause = random.uniform(wait - spread, wait + spread)  # noqa: S311  # jitter, not a secret
                await self._context.clock.sleep(max(pause, refused.after or 0.0))
                wait = min(wait * backoff.multiplier, backoff.max_interval)
            batch, parts = self._offered_again(fetch, batch, parts)
        return parts

    def _gives_up(self, elapsed: float) -> bool:
        """Whether a refused batch is lost now."""
        if self._config.message_marking.after and not self._config.message_marking.on_error:
            return False
        backoff = self._config.error_backoff
        return not backoff.enabled or bool(backoff.max_elapsed_time and elapsed >= backoff.max_elapsed_time)

    def _offered_again(
        self, fetch: Fetch, batch: Batch, former: Sequence[FetchedPart]
    ) -> tuple[Batch, list[FetchedPart]]:
        """The same batch, unless partitions have left meanwhile: the pipelines count a refused batch once."""
        parts = self._fetches.offer(fetch)
        return (batch if parts == list(former) else batch_of_parts(fetch.signal, parts)), parts

    async def _emitted(self, batch: Batch) -> None:
        """Emits the batch. After a cancellation it has a moment to end, so that its offsets are committed."""
        emitting = asyncio.ensure_future(self._emit(batch))
        try:
            await asyncio.shield(emitting)
        except asyncio.CancelledError:
            await asyncio.wait({emitting}, timeout=_LAST_CALL)
            if emitting.done() and not emitting.cancelled() and emitting.exception() is None:
                self._is_ending = True
                return
            emitting.cancel()
            raise


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
        return missing_packages("the kafka receiver", "confluent_kafka")

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
