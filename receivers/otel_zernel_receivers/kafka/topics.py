"""The topics of the receiver, and the signal of each."""

import re
from collections.abc import Iterable
from typing import Final

from otel_zernel.batch import SIGNALS, Signal
from otel_zernel_receivers.kafka.config import KafkaReceiverConfig

_KNOWN: Final = 10_000
"""Topics whose signal is remembered."""


class SharedTopic(ValueError):
    """A topic is read for two signals, which the records do not name."""


class Topics:
    """The subscription of the consumer."""

    def __init__(self, config: KafkaReceiverConfig, signals: Iterable[Signal]) -> None:
        """`signals` are those that the pipelines use: topics of others are not read.

        Raises `SharedTopic`.
        """
        used = [signal for signal in SIGNALS if signal in set(signals)]
        self._names: dict[str, Signal] = {}
        for signal in used:
            for topic in config.topics_of(signal).topics:
                if not topic.startswith("^"):
                    self._add(topic, signal)
        self._patterns = [
            (re.compile(topic), signal)
            for signal in used
            for topic in config.topics_of(signal).topics
            if topic.startswith("^")
        ]
        self._found: dict[str, Signal | None] = {}

    def _add(self, topic: str, signal: Signal) -> None:
        other = self._names.setdefault(topic, signal)
        if other != signal:
            raise SharedTopic(
                f"the topic {topic} has {other} or {signal}, not both: set {other}::topics or {signal}::topics"
            )

    @property
    def subscription(self) -> list[str]:
        """Names and patterns."""
        return [*self._names, *(pattern.pattern for pattern, _ in self._patterns)]

    def signal_of(self, topic: str) -> Signal | None:
        """The signal of a topic: that of its name, else of the first pattern."""
        if found := self._names.get(topic):
            return found
        if topic not in self._found:
            if len(self._found) >= _KNOWN:
                self._found.clear()
            self._found[topic] = next((signal for one, signal in self._patterns if one.search(topic)), None)
        return self._found[topic]
