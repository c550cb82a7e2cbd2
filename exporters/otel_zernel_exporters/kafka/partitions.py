"""The assignment of messages to partitions, where the client does not do it by their keys."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal

from otel_zernel.clock import Clock
from otel_zernel_libraries.clients.kafka.producing import MessageProducer, OutgoingMessage

_MOST_TOPICS: Final = 4096
"""Topics whose partitions are remembered. Attributes may name any number of topics."""


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
