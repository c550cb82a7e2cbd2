"""The kafka exporter: lays batches out as messages, and returns when the brokers have confirmed them."""

import asyncio
import importlib.util
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self
from weakref import WeakKeyDictionary

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import Context, Exporter
from otel_zernel.errors import CannotStart, Permanent, Retryable, invalid_is_permanent
from otel_zernel.kafka.failures import TOO_LARGE, is_retriable, kafka_reason
from otel_zernel.kafka.producing import MessageProducer, OutgoingMessage, UndeliveredMessage
from otel_zernel.kafka.properties import client_properties
from otel_zernel.kafka.tokens import token_source
from otel_zernel_exporters.kafka.config import KafkaExporterConfig
from otel_zernel_exporters.kafka.declared import SPLIT_BATCHES
from otel_zernel_exporters.kafka.layout.pieces import MessageLayout, MessagePiece
from otel_zernel_exporters.kafka.layout.sizes import EncodedPiece, OversizedItem, encode, fitting, parts
from otel_zernel_exporters.kafka.measuring import SentRecords
from otel_zernel_exporters.kafka.partitions import PartitionChoice
from otel_zernel_exporters.kafka.producer_properties import producer_properties

_AT_ONCE: Final = 256 << 10
"""Bytes of a batch that is laid out on the event loop, if it needs neither JSON nor keys."""
_OVERHEAD: Final = 128
"""Bytes of a message besides its key, value and headers: the header of a batch of one message has 61."""


class KafkaExporter(Exporter):
    """Writes OTLP into topics of Kafka. An export ends when the brokers have confirmed every message."""

    Config = KafkaExporterConfig
    stability = "beta"
    delivery = "remote"
    config: KafkaExporterConfig

    @classmethod
    def missing(cls) -> str | None:
        if importlib.util.find_spec("confluent_kafka") and importlib.util.find_spec("xxhash"):
            return None
        return "the kafka exporter needs confluent-kafka and xxhash: pip install 'otel-zernel[kafka]'"

    def __init__(self, config: KafkaExporterConfig, context: Context) -> None:
        super().__init__(config, context)
        self._layout = MessageLayout(config)
        self._headers = [(name, value.get_secret_value().encode()) for name, value in config.record_headers.items()]
        headers = sum(len(name.encode()) + len(value) + 10 for name, value in self._headers)
        self._limit = config.producer.max_message_bytes - _OVERHEAD - headers
        kind = config.record_partitioner.kind
        refresh = config.metadata.refresh_interval
        self._partitions = None if kind == "sticky_key" else PartitionChoice(kind, refresh, config.timeout / 2 or 5.0)
        self._sent = SentRecords(context.meter)
        self._split_batches = context.meter.create_counter(*SPLIT_BATCHES.counter)
        self._rest: WeakKeyDictionary[Batch, list[OutgoingMessage]] = WeakKeyDictionary()
        """The messages of batches that are not confirmed yet. A retry sends these alone, also after a cancellation."""
        self._producer: MessageProducer | None = None

    async def __aenter__(self) -> Self:
        if sentence := self.missing():
            raise CannotStart(f"{self.context.path}: {sentence}")
        properties = await asyncio.to_thread(client_properties, self.config, self.context.path)
        if token := token_source(self.config, self.context):
            properties["oauth_cb"] = token
        self._producer = MessageProducer({**properties, **producer_properties(self.config)}, self.context)
        await self._producer.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._producer:
            await self._producer.close()
            self._producer = None

    async def export(self, batch: Batch) -> None:
        producer = self._producer
        if producer is None:
            raise Permanent("the exporter is not open")
        messages = self._rest.get(batch)
        is_whole = messages is None
        if messages is None:
            with invalid_is_permanent():
                messages = self._rest[batch] = await self._messages(batch)
        undelivered = await self._send(messages, producer)
        del self._rest[batch]
        self._judge(batch, len(messages) if is_whole else 0, undelivered, producer)

    def _judge(
        self, batch: Batch, count: int, undelivered: Sequence[UndeliveredMessage], producer: MessageProducer
    ) -> None:
        """Raises `Retryable` or `Permanent` for messages that were not delivered.

        `count` is the number of all messages of the batch; 0 if some of them were delivered before.
        """
        waiting = [one for one in undelivered if is_retriable(one.error.code())]
        lost = [one for one in undelivered if not is_retriable(one.error.code())]
        if len(lost) == count and lost and not waiting:
            raise Permanent(f"{self.config.place}: {lost[0].message.topic}: {kafka_reason(lost[0].error)}")
        if lost:
            items = sum(_items(one.message) for one in lost)
            self.context.drop(items, "refused_by_broker")
            self.context.logger.warning(
                "Dropped %d items of %d messages for %s: %s",
                items,
                len(lost),
                lost[0].message.topic,
                kafka_reason(lost[0].error),
            )
        if waiting:
            self._rest[batch] = [one.message for one in waiting]
            problem = f": {producer.problem}" if producer.problem else ""
            raise Retryable(
                f"{self.config.place}: {waiting[0].message.topic}: {kafka_reason(waiting[0].error)}{problem}"
            )

    async def _messages(self, batch: Batch) -> list[OutgoingMessage]:
        """Raises `DecodeError`."""
        messages: list[OutgoingMessage] = []
        for signal in batch.signals:
            if not batch.count_of(signal):
                continue
            slow = self._layout.divides(signal) or self.config.topic_of(signal).encoding == "otlp_json"
            if slow or len(batch.bytes_of(signal)) > min(self._limit, _AT_ONCE):
                found = await asyncio.to_thread(self._laid_out, signal, batch)
            else:
                found = self._laid_out(signal, batch)
            messages += self._without_oversized(found)
        return messages

    def _laid_out(self, signal: Signal, batch: Batch) -> list[EncodedPiece | OversizedItem]:
        """May take long. Raises `DecodeError`."""
        encoding = self.config.topic_of(signal).encoding
        pieces = self._layout.pieces(signal, batch)
        found = [part for one in pieces for part in fitting(one, encoding, self._limit - len(one.key or b""))]
        if len(found) > len(pieces):
            self._split_batches.add(1)
        return found

    def _without_oversized(self, found: Iterable[EncodedPiece | OversizedItem]) -> list[OutgoingMessage]:
        messages = []
        for one in found:
            if isinstance(one, OversizedItem):
                self._lose_oversized(one)
            else:
                piece = one.piece
                messages.append(OutgoingMessage(piece.topic, one.value, piece.key, self._headers, source=piece))
        return messages

    def _lose_oversized(self, item: OversizedItem) -> None:
        self.context.drop(1, "too_large")
        self.context.logger.warning(
            "Dropped %s: its message of %d bytes is larger than producer::max_message_bytes (%d) or the broker allows",
            item,
            item.size,
            self.config.producer.max_message_bytes,
        )

    async def _send(
        self, messages: Sequence[OutgoingMessage], producer: MessageProducer
    ) -> Sequence[UndeliveredMessage]:
        """Sends the messages. Those that the broker finds too large are divided and sent again."""
        if self._partitions:
            messages = await self._partitions.assign(messages, producer, self.context.clock)
        try:
            undelivered = await producer.send(messages)
        finally:
            if self._partitions:
                self._partitions.settled(messages)
        self._sent.count(messages, undelivered)
        too_large = [one for one in undelivered if one.error.code() in TOO_LARGE]
        if not too_large:
            return undelivered
        rest = [one for one in undelivered if one.error.code() not in TOO_LARGE]
        for one in too_large:
            rest += await self._send_divided(one.message, producer, alone=len(messages) == 1)
        return rest

    async def _send_divided(
        self, message: OutgoingMessage, producer: MessageProducer, *, alone: bool
    ) -> Sequence[UndeliveredMessage]:
        """Sends the halves of a message. A single point is sent once more, without others beside it."""
        halves = await asyncio.to_thread(_halves, message, self.config.topic_of(message.source.signal).encoding)
        if isinstance(halves, OversizedItem):
            if alone:
                self._lose_oversized(halves)
                return ()
            return await self._send([message], producer)
        self._split_batches.add(1)
        return await self._send(halves, producer)


def _items(message: OutgoingMessage) -> int:
    piece: MessagePiece = message.source
    return piece.batch().item_count


def _halves(message: OutgoingMessage, encoding: str) -> list[OutgoingMessage] | OversizedItem:
    piece: MessagePiece = message.source
    halves = []
    for part in parts(piece, 0.5):
        if isinstance(part, OversizedItem):
            return OversizedItem(part.signal, part.name, len(message.value))
        value = encode(part, "otlp_json" if encoding == "otlp_json" else "otlp_proto").value
        halves.append(OutgoingMessage(part.topic, value, part.key, message.headers, source=part))
    return halves
