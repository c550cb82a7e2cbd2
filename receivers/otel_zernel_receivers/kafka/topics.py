"""The topics of the receiver, and the signal of each."""

import re
from collections.abc import Iterable
from itertools import combinations
from typing import Final

from otel_zernel.batch import STABLE_SIGNALS, Signal
from otel_zernel_receivers.kafka.config import KafkaReceiverConfig, SignalTopicsConfig

_KNOWN: Final = 10_000
"""Topics whose signal is remembered."""


class SharedTopic(ValueError):
    """A topic is read for two signals, which the records do not name."""


class Topics:
    """The topics of all signals, and the signal of each topic."""

    def __init__(self, config: KafkaReceiverConfig, signals: Iterable[Signal]) -> None:
        """`signals` are those that the pipelines use: topics of others are not read.

        Raises `SharedTopic`.
        """
        self._readers = {
            signal: _Reader(config.topics_of(signal)) for signal in STABLE_SIGNALS if signal in set(signals)
        }
        self._found: dict[str, Signal | None] = {}
        for signal, second in combinations(self._readers, 2):
            for topic in self._readers[signal].names & self._readers[second].names:
                raise SharedTopic(
                    f"the topic {topic} has {signal} or {second}, not both: set {signal}::topics or {second}::topics"
                )

    @property
    def subscription(self) -> list[str]:
        """All names and patterns, each once."""
        return list(dict.fromkeys(topic for reader in self._readers.values() for topic in reader.config.topics))

    @property
    def ignored(self) -> list[str]:
        """The patterns of topics that the client ignores: those that every signal excludes.

        A client that ignores a topic of another member could not assign it, as the leader of its group.
        """
        lists = [reader.config.exclude_topics for reader in self._readers.values()]
        return [pattern for pattern in lists[0] if all(pattern in list_ for list_ in lists[1:])] if lists else []

    def signal_of(self, topic: str) -> Signal | None:
        """The signal of a topic: that of its name, else of the first pattern. None if every signal excludes it."""
        if topic not in self._found:
            if len(self._found) >= _KNOWN:
                self._found.clear()
            self._found[topic] = self._find(topic)
        return self._found[topic]

    def _find(self, topic: str) -> Signal | None:
        willing = {signal: reader for signal, reader in self._readers.items() if not reader.excludes(topic)}
        named = (signal for signal, reader in willing.items() if topic in reader.names)
        matched = (signal for signal, reader in willing.items() if reader.matches(topic))
        return next(named, None) or next(matched, None)


class _Reader:
    """The topics of one signal."""

    def __init__(self, config: SignalTopicsConfig) -> None:
        self.config = config
        self.names = {topic for topic in config.topics if not topic.startswith("^")}
        self._patterns = [re.compile(topic) for topic in config.topics if topic.startswith("^")]
        self._excluded = [re.compile(pattern) for pattern in config.exclude_topics]

    def matches(self, topic: str) -> bool:
        return any(pattern.search(topic) for pattern in self._patterns)

    def excludes(self, topic: str) -> bool:
        return any(pattern.search(topic) for pattern in self._excluded)
