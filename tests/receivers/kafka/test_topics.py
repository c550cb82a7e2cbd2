"""The signals of topics."""

import pytest

from otel_zernel_receivers.kafka.config import KafkaReceiverConfig
from otel_zernel_receivers.kafka.receiver import consumer_properties
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


def test_the_client_ignores_only_topics_that_every_signal_excludes() -> None:
    """It would ignore them for all signals, and could not assign them to other members."""
    config = {
        "metrics": {"topics": ["^otlp_.*", "more"], "exclude_topics": ["^otlp_spans$", "^test_"]},
        "traces": {"topics": ["^otlp_s.*", "more_spans"], "exclude_topics": ["^test_"]},
    }
    topics = Topics(KafkaReceiverConfig.model_validate(config), ["metrics", "traces"])
    assert topics.subscription == ["^otlp_.*", "more", "^otlp_s.*", "more_spans"]
    assert topics.ignored == ["^test_"]


def test_a_topic_that_one_signal_excludes_may_be_that_of_another() -> None:
    both = {
        "metrics": {"topics": ["^otlp_.*"], "exclude_topics": ["^otlp_spans$", "^otlp_x"]},
        "logs": {"topics": ["^otlp_x.*"], "exclude_topics": ["^otlp_xy$"]},
    }
    topics = Topics(KafkaReceiverConfig.model_validate(both), ["metrics", "traces", "logs"])
    found = {name: topics.signal_of(name) for name in ("otlp_a", "otlp_spans", "otlp_xz", "otlp_xy")}
    assert found == {"otlp_a": "metrics", "otlp_spans": "traces", "otlp_xz": "logs", "otlp_xy": None}
