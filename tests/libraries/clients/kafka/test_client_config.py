"""The options of Kafka clients: former names, refusals in one sentence, and the properties of librdkafka.

Without the extra, `validate` says what to install.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from otel_zernel.config.load import load
from otel_zernel.config.schema import validate
from otel_zernel.errors import ConfigError
from otel_zernel.registry import Registry
from otel_zernel_exporters.kafka import KafkaExporter
from otel_zernel_exporters.kafka.sending import producer_properties
from otel_zernel_libraries.clients.kafka.properties import client_properties
from otel_zernel_receivers.kafka import KafkaReceiver
from otel_zernel_receivers.kafka.receiver import consumer_properties
from tests.exporters.otlp.certificates import Authority

REGISTRY = Registry.installed()


def exporter_properties(**options: Any) -> dict[str, Any]:
    config = KafkaExporter.Config.model_validate(options)
    return {**client_properties(config, "exporters::kafka"), **producer_properties(config)}


def receiver_properties(**options: Any) -> dict[str, Any]:
    config = KafkaReceiver.Config.model_validate(options)
    return {**client_properties(config, "receivers::kafka"), **consumer_properties(config)}


def problems_of(kind: str, options: str) -> list[str]:
    """The mistakes that `validate` reports in the component's own section."""
    text = f"{kind}: {{kafka: {options}}}"
    with pytest.raises(ConfigError) as refused:
        validate(load([f"yaml:{text}"], [], {}), REGISTRY, {})
    return [
        f"{problem.path}: {problem.message}"
        for problem in refused.value.problems
        if problem.path.startswith(f"{kind}::kafka")
    ]


def test_the_defaults_are_bounded_and_idempotent() -> None:
    found = exporter_properties()
    expected = {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "PLAINTEXT",
        "acks": -1,
        "enable.idempotence": True,
        "queue.buffering.max.kbytes": 32 << 10,
        "message.timeout.ms": 4000,
        "partitioner": "fnv1a_random",
    }
    assert expected.items() <= found.items()


def test_the_receiver_stores_offsets_itself_and_joins_cooperatively() -> None:
    expected = {
        "enable.auto.offset.store": False,
        "enable.auto.commit": True,
        "partition.assignment.strategy": "cooperative-sticky",
        "auto.offset.reset": "latest",
        "session.timeout.ms": 10_000,
        "queued.max.messages.kbytes": 16 << 10,
    }
    assert expected.items() <= receiver_properties().items()


@pytest.mark.parametrize("acks", [0, 1, "1"])
def test_fewer_acknowledgements_end_idempotence(acks: object) -> None:
    found = exporter_properties(producer={"required_acks": acks})
    assert (found["acks"], found["enable.idempotence"]) == (int(str(acks)), False)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"producer": {"compression": "zstd", "compression_params": {"level": 3}, "required_acks": 1}},
    {"producer": {"compression": "gzip", "max_message_bytes": 50_000_000}, "timeout": "30s"},
    {"timeout": "0s", "rack_id": "a", "resolve_canonical_bootstrap_servers_only": True},
    {"auth": {"sasl": {"mechanism": "SCRAM-SHA-512", "username": "u", "password": "p"}}},
    {"auth": {"sasl": {"mechanism": "OAUTHBEARER", "oauthbearer_token_source": "bearertokenauth"}}},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_librdkafka_accepts_the_properties_of_the_exporter(options: dict[str, Any]) -> None:
    Producer(exporter_properties(brokers="localhost:1", **options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_fetch_size": 10_000_000, "max_partition_fetch_size": 20_000_000, "min_fetch_size": 1000},
        {"group_rebalance_strategies": ["range", "roundrobin"], "group_instance_id": "node-1"},
        {"metrics": {"topics": ["^metrics_.*"], "exclude_topics": ["^metrics_old$"]}, "session_timeout": "45s"},
    ],
)
def test_librdkafka_accepts_the_properties_of_the_receiver(options: dict[str, Any]) -> None:
    Consumer(receiver_properties(brokers="localhost:1", **options)).close()


def test_tls_and_credentials_become_properties(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("client")
    tls = {"ca_file": authority.ca_file, "cert_file": certificate.cert_file, "key_file": certificate.key_file}
    sasl = {"mechanism": "PLAIN", "username": "u", "password": "p"}
    found = exporter_properties(brokers=["localhost:1"], tls=tls, auth={"sasl": sasl})
    assert (found["security.protocol"], found["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert (found["sasl.username"], found["sasl.password"]) == ("u", "p")
    assert found["ssl.ca.pem"] == Path(authority.ca_file).read_text()
    assert found["ssl.key.pem"].startswith("-----BEGIN")
    assert found["enable.ssl.certificate.verification"]
    Producer(found)


def test_former_names_still_work() -> None:
    options = {"topic": "all", "encoding": "otlp_json", "auth": {"plain_text": {"username": "u", "password": "p"}}}
    exporter = KafkaExporter.Config.model_validate({**options, "traces": {"topic": "own"}})
    assert [exporter.topic_of(one).topic for one in ("metrics", "traces", "logs")] == ["all", "own", "all"]
    assert exporter.metrics.encoding == "otlp_json"
    assert exporter.auth
    assert exporter.auth.sasl
    assert exporter.auth.sasl.mechanism == "PLAIN"
    receiver = KafkaReceiver.Config.model_validate({"topic": "all", "auth": {"tls": {"insecure": True}}})
    assert (receiver.logs.topics, receiver.uses_tls) == (["all"], False)
    old = KafkaReceiver.Config.model_validate({"group_rebalance_strategy": "range"})
    assert old.group_rebalance_strategies == ["range"]


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("exporters", "{auth: {kerberos: {realm: R}}}", "auth::kerberos: the Kafka client of this Python package has"),
        ("receivers", "{auth: {kerberos: {}}}", "auth::kerberos: the Kafka client of this Python package has no"),
        ("exporters", "{auth: {sasl: {mechanism: AWS_MSK_IAM_OAUTHBEARER}}}", "needs the signatures of AWS"),
        ("exporters", "{auth: {sasl: {mechanism: PLAIN, username: u}}}", "PLAIN needs username and password"),
        ("exporters", "{auth: {sasl: {mechanism: OAUTHBEARER}}}", "OAUTHBEARER needs oauthbearer_token_source"),
        ("exporters", "{brokers: ['http://a:9092']}", "'http://a:9092' is not a broker; write host:9092"),
        ("exporters", "{metrics: {topic: 'a b'}}", "'a b' is not a topic"),
        ("exporters", "{include_metadata_keys: [tenant]}", "batches have no request metadata here"),
        ("exporters", "{tls: {reload_interval: 1m}}", "reload_interval: Kafka's client reads its certificates once"),
        ("exporters", "{record_partitioner: {round_robin: , least_backup: }}", "set one of sticky_key"),
        ("exporters", "{record_partitioner: {extension: own}}", "partitioners of other extensions do not exist"),
        ("exporters", "{producer: {linger: 4s}}", "producer::linger must not be longer than half of timeout"),
        (
            "exporters",
            "{partition_logs_by_trace_id: true, partition_logs_by_resource_attributes: true}",
            "exclude each other",
        ),
        ("receivers", "{group_rebalance_strategies: [sticky]}", "Kafka's client does not support sticky"),
        ("receivers", "{group_rebalance_strategies: [range, cooperative-sticky]}", "cannot mix cooperative-sticky"),
        ("receivers", "{heartbeat_interval: 10s}", "heartbeat_interval must be shorter than session_timeout"),
        ("receivers", "{metrics: {topics: ['^(']}}", "'^(' is not a regular expression"),
        ("receivers", "{metrics: {exclude_topics: [a]}}", "exclude_topics needs a regular expression in topics"),
        ("receivers", "{dead_letter_topic: otlp_logs}", "dead_letter_topic must not be a topic that the receiver"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_path(kind: str, options: str, sentence: str) -> None:
    (problem,) = problems_of(kind, options)
    assert sentence in problem


def test_a_password_is_never_printed() -> None:
    options = {"auth": {"sasl": {"mechanism": "PLAIN", "username": "u", "password": "hush"}}}
    options["record_headers"] = {"team": "hush"}  # type: ignore[dict-item]
    config = KafkaExporter.Config.model_validate(options)
    assert "hush" not in f"{config!r} {config.model_dump()} {config.model_dump_json()}"


CONFIG = """
receivers: {kafka: }
exporters: {kafka: }
service: {pipelines: {metrics: {receivers: [kafka], exporters: [kafka]}}}
"""
WITHOUT = "import sys; sys.modules['confluent_kafka'] = None; from otel_zernel.__main__ import main; sys.exit(main())"


def test_a_missing_package_is_one_sentence_for_each_component() -> None:
    command = [sys.executable, "-c", WITHOUT, "validate", "--config", f"yaml:{CONFIG}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    output = done.stdout + done.stderr
    assert "receivers::kafka: the kafka receiver needs confluent-kafka: pip install 'otel-zernel[kafka]'" in output
    assert "exporters::kafka: the kafka exporter needs confluent-kafka and xxhash: pip install" in output
