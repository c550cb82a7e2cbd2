"""The topics of the receiver, and the signal of each."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from otel_zernel.batch import SIGNALS, Signal
from otel_zernel_receivers.kafka.config import KafkaReceiverConfig, SignalTopicsConfig

_KNOWN: Final = 10_000
"""Topics whose signal is remembered."""


class SharedTopic(ValueError):
    """A topic is read for two signals, which the records do not name."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics of one consumer. A client has one list of topics that it ignores, so signals that exclude different
    topics need consumers of their own."""

    signals: tuple[Signal, ...]
    topics: tuple[str, ...]
    """Names and patterns."""
    excluded: tuple[str, ...]
    """Patterns."""


class Topics:
    """The topics of all signals, and the signal of each topic."""

    def __init__(self, config: KafkaReceiverConfig, signals: Iterable[Signal]) -> None:
        """`signals` are those that the pipelines use: topics of others are not read.

        Raises `SharedTopic`.
        """
        self._readers = {signal: _Reader(config.topics_of(signal)) for signal in SIGNALS if signal in set(signals)}
        self._found: dict[str, Signal | None] = {}
        for signal, other in combinations(self._readers, 2):
            for topic in self._readers[signal].names & self._readers[other].names:
                raise SharedTopic(
                    f"the topic {topic} has {signal} or {other}, not both: set {signal}::topics or {other}::topics"
                )

    @property
    def subscriptions(self) -> list[Subscription]:
        """One for all signals that exclude the same topics."""
        groups: dict[tuple[str, ...], list[Signal]] = {}
        for signal, reader in self._readers.items():
            groups.setdefault(tuple(sorted(set(reader.config.exclude_topics))), []).append(signal)
        return [
            Subscription(tuple(signals), tuple(_topics(self._readers[one].config for one in signals)), excluded)
            for excluded, signals in groups.items()
        ]

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


def _topics(configs: Iterable[SignalTopicsConfig]) -> list[str]:
    """All names and patterns, each once."""
    return list(dict.fromkeys(topic for config in configs for topic in config.topics))
