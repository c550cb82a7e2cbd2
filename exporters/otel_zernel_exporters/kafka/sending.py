"""Sends messages. Those that a broker finds too large are sent alone, then divided."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal

from opentelemetry.metrics import Meter

from otel_zernel.clock import Clock
from otel_zernel.component import Context
from otel_zernel.errors import Retryable
from otel_zernel_exporters.kafka.config import KafkaExporterConfig
from otel_zernel_exporters.kafka.declared import RECORDS, SPLIT_BATCHES
from otel_zernel_exporters.kafka.layout import MessagePiece, OversizedItem, encode, parts
from otel_zernel_libraries.clients.kafka.failures import TOO_LARGE
from otel_zernel_libraries.clients.kafka.producing import MessageProducer, OutgoingMessage, UndeliveredMessage
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


class PartitionChoice:
    """`round_robin` takes the partitions in turn, `least_backup` the one with the fewest unconfirmed messages."""

    def __init__(self, kind: Literal["round_robin", "least_backup"], refresh: float, timeout: float) -> None:
        """`refresh` is the time in seconds after which the partitions are counted again; `timeout` is in seconds."""
        self._kind = kind
        self._refresh = refresh
        self._timeout = timeout
        self._counts: dict[str, tuple[int, float]] = {}
        """The number of partitions of each topic, and when it is outdated."""
        self._turns: Counter[str] = Counter()
        self._unconfirmed: Counter[tuple[str, int]] = Counter()

    async def assign(
        self, messages: Sequence[OutgoingMessage], producer: MessageProducer, clock: Clock
    ) -> list[OutgoingMessage]:
        """The messages with their partitions; `settled` must follow. Raises `Retryable` if no broker knows them."""
        for topic in {message.topic for message in messages}:
            if self._counts.get(topic, (0, 0.0))[1] <= clock.monotonic():
                count = await producer.partition_count(topic, self._timeout)
                if len(self._counts) >= _MOST_TOPICS:
                    self._counts.clear()
                    self._turns.clear()
                self._counts[topic] = count, clock.monotonic() + (self._refresh if count else 0)
        return [replace(message, partition=self._next(message.topic)) for message in messages]

    def settled(self, messages: Iterable[OutgoingMessage]) -> None:
        """The messages are confirmed, or have failed."""
        self._unconfirmed.subtract((message.topic, message.partition) for message in messages)
        self._unconfirmed = +self._unconfirmed

    def _next(self, topic: str) -> int:
        count = self._counts.get(topic, (0, 0.0))[0]
        if not count:  # the first message makes the topic
            return -1
        turn = self._turns[topic]
        self._turns[topic] = (turn + 1) % count
        order = [(turn + step) % count for step in range(count)]
        if self._kind == "least_backup":
            order.sort(key=lambda partition: self._unconfirmed[topic, partition])
        self._unconfirmed[topic, order[0]] += 1
        return order[0]


_MOST_COUNTED: Final = 200
"""Topics with a count of their own. Data choose topics by `topic_from_attribute`, so their number has no bound."""
_OTHER: Final = "_OTHER"


class SentRecords:
    """Counts messages by topic and outcome. Topics beyond the first `_MOST_COUNTED` share one count."""

    def __init__(self, meter: Meter) -> None:
        self._records = meter.create_counter(*RECORDS.counter)
        self._topics: set[str] = set()

    def count(self, messages: Iterable[OutgoingMessage], undelivered: Sequence[UndeliveredMessage]) -> None:
        failed = Counter(self._named(message.message.topic) for message in undelivered)
        sent = Counter(self._named(message.topic) for message in messages)
        sent.subtract(failed)
        for outcome, counts in (("success", sent), ("failure", failed)):
            for topic, count in counts.items():
                if count:
                    self._records.add(count, {"topic": topic, "outcome": outcome})

    def _named(self, topic: str) -> str:
        if len(self._topics) < _MOST_COUNTED:
            self._topics.add(topic)
        return topic if topic in self._topics else _OTHER


_AT_ONCE: Final = 500
"""Messages that are sent alone at a time. An attempt that is cancelled repeats no more than these."""
_MOST_TOPICS: Final = 4096
"""Topics with a lower limit that are remembered. Attributes may name any number of topics."""


class MessageSending:
    """Sends messages by two producers.

    The first joins the messages of a partition to requests of up to `producer::max_message_bytes`. A broker refuses
    such a request if its limit, or that of the topic, is lower, although each message may be small. So the second sends
    each message in a request of its own.
    """

    def __init__(
        self, config: KafkaExporterConfig, context: Context, lose_oversized: Callable[[OversizedItem], None]
    ) -> None:
        """`lose_oversized` takes single items that the broker refuses even alone."""
        self._config = config
        self._context = context
        self._lose_oversized = lose_oversized
        kind, refresh = config.record_partitioner.kind, config.metadata.refresh_interval
        self._partitions = None if kind == "sticky_key" else PartitionChoice(kind, refresh, config.timeout / 2 or 5.0)
        self._sent = SentRecords(context.meter)
        self._split_batches = context.meter.create_counter(*SPLIT_BATCHES.counter)
        self._together: MessageProducer | None = None
        self._alone: MessageProducer | None = None
        self._lower_limits: dict[str, float] = {}
        """When to try again to send several messages of the topic in a request."""

    @property
    def problem(self) -> str:
        """The newest problem of the connection, in words; empty when a message has been confirmed since."""
        return next(
            (producer.problem for producer in (self._together, self._alone) if producer and producer.problem), ""
        )

    async def open(self, properties: Properties) -> None:
        """`properties` are those of every client. Raises `CannotStart` if the settings are unusable."""
        own = {**properties, **producer_properties(self._config)}
        self._together = MessageProducer(own, self._context)
        self._alone = MessageProducer({**own, "batch.num.messages": 1}, self._context)
        await self._together.open()

    async def close(self) -> None:
        """Safe without `open`."""
        for producer in (self._together, self._alone):
            if producer:
                await producer.close()
        self._together = self._alone = None

    async def send(self, messages: list[OutgoingMessage]) -> list[UndeliveredMessage]:
        """Returns the messages that the brokers did not confirm, for reasons other than their size.

        Removes from `messages` what needs no further attempt if this one is cancelled.
        """
        now = self._context.clock.monotonic()
        waiting = [message for message in messages if self._lower_limits.get(message.topic, now) > now]
        together = [message for message in messages if self._lower_limits.get(message.topic, now) <= now]
        undelivered, refused = _by_size(await self._attempt(together, self._together))
        waiting += refused
        self._remember(refused)
        while waiting:
            messages[:] = [*(message.message for message in undelivered), *waiting]
            if self._alone:
                await self._alone.open()  # connects at the first use
            failed, refused = _by_size(await self._attempt(waiting[:_AT_ONCE], self._alone))
            undelivered += failed
            waiting = [*await self._divided(refused), *waiting[_AT_ONCE:]]
        return undelivered

    async def _attempt(
        self, messages: Sequence[OutgoingMessage], producer: MessageProducer | None
    ) -> list[UndeliveredMessage]:
        if not messages:
            return []
        if producer is None:
            raise Retryable("the producer is closed")
        if self._partitions:
            messages = await self._partitions.assign(messages, producer, self._context.clock)
        try:
            undelivered = await producer.send(messages)
        finally:
            if self._partitions:
                self._partitions.settled(messages)
        self._sent.count(messages, undelivered)
        return undelivered

    def _remember(self, refused: Sequence[OutgoingMessage]) -> None:
        """The limits of these topics are lower than that of the exporter."""
        until = self._context.clock.monotonic() + self._config.metadata.refresh_interval
        for topic in {message.topic for message in refused}:
            if len(self._lower_limits) >= _MOST_TOPICS:
                self._lower_limits.clear()
            if topic not in self._lower_limits:
                self._context.logger.warning(
                    "The broker refuses requests for %s that producer::max_message_bytes (%d) allows, so the exporter"
                    " sends each message alone: set it to the topic's max.message.bytes",
                    topic,
                    self._config.producer.max_message_bytes,
                )
            self._lower_limits[topic] = until

    async def _divided(self, messages: Sequence[OutgoingMessage]) -> list[OutgoingMessage]:
        """The halves of the messages. Single items are lost."""
        divided: list[OutgoingMessage] = []
        for message in messages:
            encoding = self._config.topic_of(message.source.signal).encoding
            halves = await asyncio.to_thread(_halves, message, encoding)
            if isinstance(halves, OversizedItem):
                self._lose_oversized(halves)
            else:
                self._split_batches.add(1)
                divided += halves
        return divided


def _by_size(undelivered: Sequence[UndeliveredMessage]) -> tuple[list[UndeliveredMessage], list[OutgoingMessage]]:
    """Those that failed for other reasons, and the messages that the broker found too large."""
    failed = [message for message in undelivered if message.error.code() not in TOO_LARGE]
    return failed, [message.message for message in undelivered if message.error.code() in TOO_LARGE]


def _halves(message: OutgoingMessage, encoding: str) -> list[OutgoingMessage] | OversizedItem:
    piece: MessagePiece = message.source
    halves = []
    for part in parts(piece, 0.5):
        if isinstance(part, OversizedItem):
            return OversizedItem(part.signal, part.name, len(message.value))
        value = encode(part, "otlp_json" if encoding == "otlp_json" else "otlp_proto").value
        halves.append(OutgoingMessage(part.topic, value, part.key, message.headers, source=part))
    return halves
