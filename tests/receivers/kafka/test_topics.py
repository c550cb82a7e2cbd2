"""The signals of topics."""

import pytest

from otel_zernel_receivers.kafka.config import KafkaReceiverConfig
from otel_zernel_receivers.kafka.consumer_properties import consumer_properties
from otel_zernel_receivers.kafka.topics import SharedTopic, Topics


def test_the_signal_of_a_topic_is_known_however_many_topics_there_are() -> None:
    """A record of an unknown topic would be passed over."""
    config = KafkaReceiverConfig.model_validate({"metrics": {"topics": ["^metrics-.*"]}})
    topics = Topics(config, ["metrics"])
    assert {topics.signal_of(f"metrics-{number}") for number in range(10_002)} == {"metrics"}


def test_a_topic_of_two_signals_is_refused() -> None:
    """All records went to one of the signals."""
    config = KafkaReceiverConfig.model_validate({"topic": "otlp"})
    assert Topics(config, ["traces"]).signal_of("otlp") == "traces"
    with pytest.raises(SharedTopic, match="the topic otlp has metrics or traces, not both: set metrics::topics"):
        Topics(config, ["metrics", "traces"])


def test_former_names_and_limits_of_the_opentelemetry_collector_are_accepted() -> None:
    config = KafkaReceiverConfig.model_validate({"logs": {"topic": "mine"}, "max_fetch_size": 0})
    assert config.logs.topics == ["mine"]
    assert consumer_properties(config)["fetch.max.bytes"] == 1_000_000_000
    with pytest.raises(ValueError, match="topic is the former name of topics: remove it"):
        KafkaReceiverConfig.model_validate({"logs": {"topic": "mine", "topics": ["other"]}})
