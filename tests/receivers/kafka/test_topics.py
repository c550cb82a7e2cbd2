"""The signals of topics.

Regular expressions of topics: Python and Kafka's client choose the same topics.
"""

import pytest

from otel_zernel.testing import Downstream, until
from otel_zernel_receivers.kafka.config import KafkaReceiverConfig
from otel_zernel_receivers.kafka.receiver import consumer_properties
from otel_zernel_receivers.kafka.topics import SharedTopic, Topics
from tests.core.parts import batch_of, every_signal, values_of
from tests.libraries.clients.kafka.mock_cluster import MockCluster, write
from tests.receivers.kafka.receiving import dropped_by, receiving


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


TOPICS = ["end-b", "m10", "m7", "dot.x", "dotyx", "abab", "z"]
PATTERNS = {
    "^m[0-9]{2}$": {"m10"},
    "^none|-b$": {"end-b"},
    r"^dot\.x": {"dot.x"},
    "^(ab)+$": {"abab"},
    "^[^a-y]": {"z"},
}


async def test_every_record_that_the_client_reads_has_a_signal(cluster: MockCluster) -> None:
    """The client finds `|-b$` also within a name. Such records were skipped without a count."""
    for number, topic in enumerate(TOPICS):
        write(cluster.brokers, topic, batch_of(float(number)).bytes_of("metrics"))
    downstream = Downstream()
    wanted = {float(TOPICS.index(topic)) for topics in PATTERNS.values() for topic in topics}
    async with receiving(cluster.brokers, downstream, metrics={"topics": list(PATTERNS)}) as receiver:
        await until(lambda: downstream.point_count >= len(wanted))
        assert dropped_by(receiver) == {}
    assert set(values_of(downstream.batches)) == wanted


async def test_a_topic_that_one_signal_excludes_is_read_for_another(cluster: MockCluster) -> None:
    """The client ignored a topic that any signal excluded."""
    batch = every_signal()
    write(cluster.brokers, "otlp_metrics", batch.bytes_of("metrics"))
    write(cluster.brokers, "otlp_spans", batch.bytes_of("traces"))
    downstream = Downstream()
    excluding = {"topics": ["^otlp_.*"], "exclude_topics": ["^otlp_spans$"]}
    async with receiving(cluster.brokers, downstream, metrics=excluding) as receiver:
        await until(lambda: len(downstream.batches) == 2)
        assert dropped_by(receiver) == {}
    assert {signal for batch in downstream.batches for signal in batch.signals} == {"metrics", "traces"}


@pytest.mark.parametrize(
    "pattern",
    [r"^m\d+", r"^m\w", "^(?:a)", "^a+?", "^a*+", r"^[\d]", "^[[:digit:]]", r"^a\<b", "^a{,3}", "^*a", "^(*a)"],
)
def test_a_pattern_that_the_client_reads_differently_is_refused_at_the_start(pattern: str) -> None:
    for key in ("topics", "exclude_topics"):
        with pytest.raises(ValueError, match="is not a regular expression"):
            KafkaReceiverConfig.model_validate({"metrics": {"topics": ["^ok"], key: [pattern]}})
