"""Values and keys of the OpenTelemetry Collector are read as it reads them, or refused as it refuses them."""

from typing import Any

import pytest
import yaml

from otel_zernel.config.schema import Settings, read_settings
from otel_zernel.errors import ConfigError
from otel_zernel.registry import Registry

OTLP: dict[str, Any] = {"otlp": {"protocols": {"grpc": {}}}}
DEBUG: dict[str, Any] = {"debug": {}}


def settings_of(text: str, kind: str = "exporters", signal: str = "metrics") -> Settings:
    """The settings of a collector with a component of this kind, or with this `service::telemetry`."""
    given: dict[str, Any] = yaml.safe_load(text)
    sections = {"receivers": OTLP, "processors": {}, "exporters": DEBUG}
    if kind != "telemetry":
        sections[kind] = given
    pipeline = {name: list(section) for name, section in sections.items()}
    service = {"pipelines": {signal: pipeline}, "telemetry": given if kind == "telemetry" else {}}
    config = yaml.safe_dump({**sections, "service": service})
    return read_settings([f"yaml:{config}"], [], {}, Registry.installed())


def exporter(text: str) -> Any:
    """The configuration of an exporter."""
    return next(iter(settings_of(text).exporters.values())).config


def refusal(text: str, kind: str, signal: str = "metrics") -> str:
    """The only mistake, without its place in the file."""
    with pytest.raises(ConfigError) as refused:
        settings_of(text, kind, signal)
    (problem,) = refused.value.problems
    return f"{problem.path}: {problem.message}"


def test_words_of_a_fixed_set_may_be_in_any_case() -> None:
    telemetry = settings_of("{logs: {level: WARN, encoding: Json}, metrics: {level: NONE}}", "telemetry").telemetry
    assert (telemetry.logs.level, telemetry.logs.encoding, telemetry.metrics.level) == ("warn", "json", "none")
    assert exporter("{debug: {verbosity: Detailed}}").verbosity == "detailed"
    assert exporter("{prometheus: {translation_strategy: notranslation}}").naming_strategy == "NoTranslation"


def test_a_word_that_differs_in_more_than_its_case_is_refused() -> None:
    assert refusal("{debug: {verbosity: Detail}}", "exporters").startswith(
        'exporters::debug::verbosity: unknown value "Detail"; did you mean "detailed"?'
    )


@pytest.mark.parametrize("given", ["{x-team: a, x-run: b}", "[{name: x-team, value: a}, {name: x-run, value: b}]"])
@pytest.mark.parametrize("key", ["{otlp_http: {endpoint: 'http://h:1', headers: %s}}", "{kafka: {record_headers: %s}}"])
def test_headers_are_a_mapping_or_a_list_of_names_and_values(key: str, given: str) -> None:
    config = exporter(key % given)
    headers = config.headers if hasattr(config, "headers") else config.record_headers
    assert {name: value.get_secret_value() for name, value in headers.items()} == {"x-team": "a", "x-run": "b"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("[{name: a, value: b}, {name: a, value: c}]", "'a' is in the list twice; remove one of them"),
        ("[{key: a, value: b}]", "write a mapping, such as {NAME: VALUE}, or a list of {name: NAME, value: VALUE}"),
    ],
)
def test_a_list_of_headers_without_a_name_or_with_the_same_twice_is_refused(given: str, message: str) -> None:
    mistake = refusal(f"{{otlp_http: {{endpoint: 'http://h:1', headers: {given}}}}}", "exporters")
    assert mistake == f"exporters::otlp_http::headers: {message}"


def test_all_resource_attributes_become_labels_without_those_of_the_service() -> None:
    config = exporter(
        "{prometheus: {resource_to_telemetry_conversion: {enabled: true, exclude_service_attributes: true}}}"
    )
    assert config.resource_labels.included == ("*",)
    assert config.resource_labels.excluded == ("service.name", "service.namespace", "service.instance.id")


def test_names_without_suffixes_are_those_of_the_strategy_without_them() -> None:
    plain = exporter("{prometheus: {add_metric_suffixes: false}}")
    assert plain.naming_strategy == "UnderscoreEscapingWithoutSuffixes"
    both = exporter("{prometheus: {add_metric_suffixes: false, translation_strategy: NoTranslation}}")
    assert both.naming_strategy == "NoTranslation"


@pytest.mark.parametrize(
    ("queue", "sizer"),
    [
        ("{sizer: bytes, batch: {min_size: 10}}", "bytes"),
        ("{sizer: BYTES, batch: {min_size: 10}}", "bytes"),
        ("{sizer: items, batch: {min_size: 10}}", "items"),
        ("{sizer: bytes, batch: {sizer: items}}", "items"),
        ("{batch: {sizer: bytes}}", "bytes"),
        ("{batch: {min_size: 10}}", "items"),
        ("{sizer: requests, batch: {min_size: 10}}", "items"),
        ("{sizer: bytes, batch: {}}", "items"),
    ],
)
def test_a_batch_with_options_has_the_sizer_of_its_queue(queue: str, sizer: str) -> None:
    config = exporter(f"{{otlp_grpc: {{endpoint: 'h:1', sending_queue: {queue}}}}}")
    assert config.sending_queue.batch.sizer == sizer


def test_the_interval_of_the_file_exporter_is_in_nanoseconds_without_a_unit() -> None:
    assert exporter("{file: {path: x, flush_interval: 2000000}}").flush_interval == 0.002


def test_a_path_of_a_url_needs_no_first_slash() -> None:
    text = "{otlp: {protocols: {http: {metrics_url_path: v1/metrics, logs_url_path: my/logs}}}}"
    config: Any = settings_of(text, "receivers").receivers["otlp"].config
    assert [config.protocols.http.url_path(signal) for signal in ("metrics", "logs")] == ["/v1/metrics", "/my/logs"]


def test_fields_of_every_line_and_a_level_of_traces_are_accepted() -> None:
    telemetry = settings_of("{logs: {initial_fields: {cluster: a}}, traces: {level: none}}", "telemetry").telemetry
    assert telemetry.logs.initial_fields == {"cluster": "a"}


@pytest.mark.parametrize(
    ("kind", "text", "keys"),
    [
        (
            "exporters",
            "{otlp_http: {endpoint: 'http://h:1', read_buffer_size: 1, max_idle_conns: 2, http2_ping_timeout: 1s}}",
            ["http2_ping_timeout", "max_idle_conns", "read_buffer_size"],
        ),
        ("exporters", "{otlp/two: {endpoint: 'h:1', wait_for_ready: true}}", ["wait_for_ready"]),
        ("receivers", "{otlp: {protocols: {grpc: {read_buffer_size: 1}}}}", ["protocols::grpc::read_buffer_size"]),
        (
            "receivers",
            "{kafka: {use_leader_epoch: true, metadata: {full: true}}}",
            ["metadata::full", "use_leader_epoch"],
        ),
        ("telemetry", "{logs: {output_paths: [stdout], processors: []}}", ["logs::output_paths", "logs::processors"]),
    ],
)
def test_a_key_without_an_effect_says_so_once(kind: str, text: str, keys: list[str]) -> None:
    start = "service::telemetry" if kind == "telemetry" else f"{kind}::{text[1:].partition(':')[0]}"
    warnings = [warning.partition(": has no effect: ")[0] for warning in settings_of(text, kind).warnings]
    assert sorted(warnings) == [f"{start}::{key}" for key in keys]


@pytest.mark.parametrize(
    ("kind", "signal", "text", "message"),
    [
        ("receivers", "logs", "{kafka: {logs: {topics: [^a], exclude_topics: ['']}}}", "would exclude every topic"),
        ("exporters", "logs", "{otlp_grpc: {endpoint: 'unix:///'}}", "is not a gRPC endpoint"),
        (
            "processors",
            "metrics",
            "{attributes: {include: {match_type: strict, span_names: [a]}, actions: [{key: a, action: delete}]}}",
            'processor "attributes" does not accept metrics',
        ),
        (
            "processors",
            "traces",
            "{attributes: {exclude: {match_type: strict, log_bodies: [a]}, actions: [{key: a, action: delete}]}}",
            'processor "attributes" does not accept traces',
        ),
    ],
)
def test_what_the_collector_refuses_is_refused(kind: str, signal: str, text: str, message: str) -> None:
    assert message in refusal(text, kind, signal)
