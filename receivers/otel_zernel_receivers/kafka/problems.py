"""The problems of the consumer: which the user has to know, which end it, and when they are over."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from otel_zernel.component import Context
from otel_zernel.errors import ReceiverFailed
from otel_zernel_libraries.clients.kafka.failures import ALL_BROKERS_DOWN, FENCED, is_explained, kafka_reason
from otel_zernel_receivers.kafka.config import KafkaReceiverConfig

if TYPE_CHECKING:  # an optional package
    from confluent_kafka import Consumer, KafkaError

_UNKNOWN_TOPIC: Final = 3
_MAX_POLL_EXCEEDED: Final = -147
_WARNED: Final = frozenset({ALL_BROKERS_DOWN, _UNKNOWN_TOPIC, 29, 30, 31, 58, -169, -181, _MAX_POLL_EXCEEDED})
"""Errors that need the user: missing topics, rights, credentials, TLS. librdkafka repeats all others by itself."""
_FATAL: Final = -150
_JOIN_REFUSED: Final = frozenset({23, 24, 26, 35, 42, 81, 82, 110, 111, 112})
"""The group does not take this member: protocol, name, session timeout, version, size, a name in use, assignor."""
_MOST_KNOWN: Final = 1000
"""Problems that are remembered. A problem of a topic is one of its own."""


class ConsumerProblems:
    """Warns once of each problem, and shows the newest in the collector's health until it is over."""

    def __init__(self, config: KafkaReceiverConfig, context: Context, report: Callable[[str | None], None]) -> None:
        """`report` shows a problem in the health; it is called in the thread of the consumer."""
        self._config = config
        self._context = context
        self._report = report
        self._current: int | None = None
        """The code of the problem in the health."""
        self._warned: set[tuple[int, str]] = set()
        """Codes and topics. Words would differ between repetitions."""

    def take(self, error: "KafkaError", topic: str = "") -> None:
        """Raises `ReceiverFailed` for an error that ends the consumer."""
        code, words = error.code(), kafka_reason(error)
        if code == _FATAL and self._config.group_instance_id:  # static members have no other
            raise ReceiverFailed(str(FENCED))
        if error.fatal() or code == _FATAL or code in _JOIN_REFUSED:
            raise ReceiverFailed(words)
        if code not in _WARNED:
            self._context.logger.debug("Kafka's client: %s", words)
            return
        if is_explained(error, self._current):
            return
        if code != _UNKNOWN_TOPIC:  # perhaps nobody writes this signal
            self._current = code
            self._report(words)
        if (code, topic) not in self._warned:
            if len(self._warned) >= _MOST_KNOWN:
                self._warned.clear()
            self._warned.add((code, topic))
            self._context.logger.warning("Cannot read from %s: %s", self._config.place, words)

    def solved(self) -> None:
        """Records arrive, or the group has assigned partitions."""
        if self._current is not None:
            self._warned = {(code, topic) for code, topic in self._warned if code == _UNKNOWN_TOPIC}
            self._current = None
            self._report(None)

    def look(self, consumer: "Consumer") -> None:
        """After a problem, asks the brokers for their topics: an answer is the end of an outage. Blocks up to 0.5 s."""
        from confluent_kafka import KafkaException

        if self._current is None:
            return
        try:
            consumer.list_topics(timeout=0.5)
        except KafkaException:
            return
        if consumer.assignment():
            self.solved()
