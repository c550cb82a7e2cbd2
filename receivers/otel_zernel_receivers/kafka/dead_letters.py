"""The dead-letter topic: records that are not OTLP, with their places."""

import asyncio
from collections.abc import Sequence
from typing import Final

from otel_zernel.component import Context
from otel_zernel.errors import Retryable
from otel_zernel_libraries.clients.kafka.failures import is_retriable, kafka_reason
from otel_zernel_libraries.clients.kafka.producing import MessageProducer, OutgoingMessage, UndeliveredMessage
from otel_zernel_libraries.clients.kafka.properties import Properties
from otel_zernel_receivers.kafka.fetches import UndecodableRecord
from otel_zernel_receivers.kafka.measuring import ConsumerMetrics

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
            lost = [one for one in undelivered if not is_retriable(one.error.code())]
            waiting = [one.message for one in undelivered if is_retriable(one.error.code())]
            self._lose(lost)
            for record in {id(one): one.source for one in rest}.values():
                if not any(one.message.source is record for one in undelivered):
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
            self._drop([one.message.source for one in lost])

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
