"""The problems of the consumer: which the user has to know, and when they are over."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from otel_zernel.component import Context
from otel_zernel.kafka.failures import kafka_reason

if TYPE_CHECKING:  # an optional package
    from confluent_kafka import Consumer, KafkaError

_ALL_BROKERS_DOWN: Final = -187
_UNKNOWN_TOPIC: Final = 3
_MAX_POLL_EXCEEDED: Final = -147
_WARNED: Final = frozenset({_ALL_BROKERS_DOWN, _UNKNOWN_TOPIC, 29, 30, 31, 58, -169, -181, _MAX_POLL_EXCEEDED})
"""Errors that need the user: missing topics, rights, credentials, TLS. librdkafka repeats all others by itself."""


class ConsumerProblems:
    """Warns once of each problem, and shows the newest in the collector's health until it is over."""

    def __init__(self, place: str, context: Context, report: Callable[[str | None], None]) -> None:
        """`report` shows a problem in the health; it is called in the thread of the consumer."""
        self._place = place
        self._context = context
        self._report = report
        self._newest = ""
        self._warned: set[str] = set()

    def take(self, error: "KafkaError") -> None:
        """An error that does not end the consumer."""
        words = kafka_reason(error)
        if error.code() not in _WARNED:
            self._context.logger.debug("Kafka's client: %s", words)
            return
        if error.code() != _UNKNOWN_TOPIC:  # perhaps nobody writes this signal
            self._newest = words
            self._report(words)
        if words not in self._warned:
            self._warned.add(words)
            self._context.logger.warning("Cannot read from %s: %s", self._place, words)

    def solved(self) -> None:
        """Records arrive, or the group has assigned partitions."""
        if self._newest:
            self._warned.discard(self._newest)
            self._newest = ""
            self._report(None)

    def look(self, consumer: "Consumer") -> None:
        """After a problem, asks the brokers for their topics: an answer is the end of an outage. Blocks up to 0.5 s."""
        from confluent_kafka import KafkaException

        if not self._newest:
            return
        try:
            consumer.list_topics(timeout=0.5)
        except KafkaException:
            return
        if consumer.assignment():
            self.solved()
