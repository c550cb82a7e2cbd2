"""The kafka exporter: lays batches out as messages, and returns when the brokers have confirmed them."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Self
from weakref import WeakKeyDictionary

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import Context
from otel_zernel.errors import CannotStart, Correctable, Permanent, Retryable, invalid_is_permanent
from otel_zernel_exporters.kafka.config import KafkaExporterConfig
from otel_zernel_exporters.kafka.declared import SPLIT_BATCHES
from otel_zernel_exporters.kafka.layout import EncodedPiece, MessageLayout, MessagePiece, OversizedItem, fitting
from otel_zernel_exporters.kafka.sending import MessageSending
from otel_zernel_libraries.clients.kafka.failures import is_correctable, is_retriable, kafka_reason
from otel_zernel_libraries.clients.kafka.producing import OutgoingMessage, UndeliveredMessage
from otel_zernel_libraries.clients.kafka.properties import client_properties
from otel_zernel_libraries.clients.kafka.tokens import token_source
from otel_zernel_libraries.extras import missing_packages
from otel_zernel_libraries.histograms.temporality import ConvertingExporter, SeriesMemoryConfig, settled_bounds
from otel_zernel_libraries.prometheus.histograms import fixed_bounds

_AT_ONCE: Final = 256 << 10
"""Bytes of a batch that is laid out on the event loop, if it needs neither JSON nor keys."""
_OVERHEAD: Final = 128
"""Bytes of a message besides its key, value and headers: the header of a batch of one message has 61."""


class KafkaExporter(ConvertingExporter):
    """Writes OTLP into topics of Kafka. An export ends when the brokers have confirmed every message."""

    Config = KafkaExporterConfig
    stability = "beta"
    delivery = "remote"
    config: KafkaExporterConfig

    @classmethod
    def missing(cls) -> str | None:
        return missing_packages("the kafka exporter", "confluent_kafka", "xxhash")

    def __init__(self, config: KafkaExporterConfig, context: Context) -> None:
        super().__init__(config, context)
        self._bounds = settled_bounds(config.moving_bounds, fixed_bounds, SeriesMemoryConfig(), context)
        self._layout = MessageLayout(config)
        self._headers = [(name, value.get_secret_value().encode()) for name, value in config.record_headers.items()]
        headers = sum(len(name.encode()) + len(value) + 10 for name, value in self._headers)
        self._limit = config.producer.max_message_bytes - _OVERHEAD - headers
        self._sending = MessageSending(config, context, self._lose_oversized)
        self._split_batches = context.meter.create_counter(*SPLIT_BATCHES.counter)
        self._rest: WeakKeyDictionary[Batch, list[OutgoingMessage]] = WeakKeyDictionary()
        """The messages of batches that are not confirmed yet. A retry sends these alone, also after a cancellation."""
        self._is_open = False

    async def __aenter__(self) -> Self:
        if sentence := self.missing():
            raise CannotStart(f"{self.context.path}: {sentence}")
        properties = await asyncio.to_thread(client_properties, self.config, self.context.path)
        if token := token_source(self.config, self.context):
            properties["oauth_cb"] = token
        await self._sending.open(properties)
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        await self._sending.close()

    async def export(self, batch: Batch) -> None:
        if not self._is_open:
            raise Permanent("the exporter is not open")
        messages = self._rest.get(batch)
        if messages is None:
            with invalid_is_permanent():
                messages = self._rest[batch] = await self._messages(batch)
        undelivered = await self._sending.send(messages)
        del self._rest[batch]
        self._judge(batch, undelivered)

    def _judge(self, batch: Batch, undelivered: Sequence[UndeliveredMessage]) -> None:
        """Raises `Retryable` or `Permanent` for messages that were not delivered."""
        waiting: list[UndeliveredMessage] = []
        refused: list[UndeliveredMessage] = []
        for undelivered_message in undelivered:
            (waiting if is_retriable(undelivered_message.error.code()) else refused).append(undelivered_message)
        is_whole = (
            bool(refused)
            and sum(_items(undelivered_message.message) for undelivered_message in undelivered) == batch.item_count
        )
        to_correct: list[UndeliveredMessage] = []
        lost: list[UndeliveredMessage] = []
        for message in refused:
            (to_correct if self._is_correctable(message, is_whole=is_whole) else lost).append(message)
        items = sum(_items(message.message) for message in lost)
        if lost and is_whole and len(lost) == len(undelivered):
            raise Permanent(f"{self.config.place}: {lost[0].message.topic}: {kafka_reason(lost[0].error)}")
        if lost:
            self.context.drop(items, "refused_by_broker")
            self.context.logger.warning(
                "Dropped %d items of %d messages for %s: %s",
                items,
                len(lost),
                lost[0].message.topic,
                kafka_reason(lost[0].error),
            )
        if not waiting and not to_correct:
            return
        self._rest[batch] = [message.message for message in (*to_correct, *waiting)]
        if to_correct:
            first = to_correct[0]
            words = f"{self.config.place}: {first.message.topic}: {kafka_reason(first.error)}"
            raise Correctable(words, str(first.error.code()))
        problem = f": {self._sending.problem}" if self._sending.problem else ""
        raise Retryable(f"{self.config.place}: {waiting[0].message.topic}: {kafka_reason(waiting[0].error)}{problem}")

    def _is_correctable(self, failed: UndeliveredMessage, *, is_whole: bool) -> bool:
        """Whether the message is kept until somebody corrects a setting. `is_whole`: nothing of its batch has arrived.

        If the brokers take other messages of the batch, and data have chosen the topic, the data are at fault.
        """
        code, message = failed.error.code(), failed.message
        if not is_correctable(code) or code in self.config.retry_on_failure.permanent_codes:
            return False
        signal: Signal = message.source.signal
        return is_whole or message.topic == self.config.topic_of(signal).topic

    async def _messages(self, batch: Batch) -> list[OutgoingMessage]:
        """Raises `DecodeError`."""
        messages: list[OutgoingMessage] = []
        for signal in batch.signals:
            if not batch.count_of(signal):
                continue
            slow = self._layout.divides(signal) or self.config.topic_of(signal).encoding == "otlp_json"
            if slow or len(batch.bytes_of(signal)) > min(self._limit, _AT_ONCE):
                pieces = await asyncio.to_thread(self._laid_out, signal, batch)
            else:
                pieces = self._laid_out(signal, batch)
            messages += self._without_oversized(pieces)
        return messages

    def _laid_out(self, signal: Signal, batch: Batch) -> list[EncodedPiece | OversizedItem]:
        """May take long. Raises `DecodeError`."""
        encoding = self.config.topic_of(signal).encoding
        pieces = self._layout.pieces(signal, batch)
        parts = [part for piece in pieces for part in fitting(piece, encoding, self._limit - len(piece.key or b""))]
        if len(parts) > len(pieces):
            self._split_batches.add(1)
        return parts

    def _without_oversized(self, pieces: Iterable[EncodedPiece | OversizedItem]) -> list[OutgoingMessage]:
        messages = []
        for piece_or_item in pieces:
            if isinstance(piece_or_item, OversizedItem):
                self._lose_oversized(piece_or_item)
            else:
                piece = piece_or_item.piece
                messages.append(
                    OutgoingMessage(piece.topic, piece_or_item.value, piece.key, self._headers, source=piece)
                )
        return messages

    def _lose_oversized(self, item: OversizedItem) -> None:
        self.context.drop(1, "too_large")
        self.context.logger.warning(
            "Dropped %s: its message of %d bytes is larger than producer::max_message_bytes (%d) or the broker allows",
            item,
            item.size,
            self.config.producer.max_message_bytes,
        )


def _items(message: OutgoingMessage) -> int:
    piece: MessagePiece = message.source
    return piece.batch().item_count
