"""Valid configurations become settings.

A configuration without pipelines is valid with an extension that works alone, and only then.
"""

import json

import pytest
from pydantic import SecretStr

from otel_zernel.batch import ALL_SIGNALS
from otel_zernel.config.schema import Settings, read_settings
from otel_zernel.errors import ConfigError
from otel_zernel.registry import Registry
from otel_zernel.types import Address
from tests.core.config.components import MINIMAL, In, Out, out_config, problems, settings_of


def test_the_smallest_configuration_has_all_defaults() -> None:
    settings = settings_of(MINIMAL)
    assert settings.receivers["in"].cls is In
    assert settings.receivers["in"].config == In.Config()
    assert settings.exporters["out"].cls is Out
    pipeline = settings.pipelines["training"]
    assert (pipeline.receivers, pipeline.processors, pipeline.exporters) == (("in",), (), ("out",))
    assert settings.shutdown_timeout == 20
    assert settings.telemetry.logs.level == "info"
    assert [reader.pull.exporter.prometheus.port for reader in settings.telemetry.metrics.readers if reader.pull] == [
        8888
    ]


def test_sections_components_and_options_may_be_null() -> None:
    nulls = "processors: \nextensions: {health: }\nreceivers: {in: {interval: }}\n"
    settings = settings_of(MINIMAL, nulls + "exporters: {out/2: {endpoint: x, queue: , token: }}")
    assert settings.receivers["in"].config == In.Config()
    assert settings.exporters["out/2"].config == Out.Config(endpoint="x", token=None)


def test_unused_components_are_allowed_and_validated() -> None:
    assert "out/unused" in settings_of(MINIMAL, "exporters: {out/unused: {endpoint: x}}").exporters
    assert problems(MINIMAL, "exporters: {out/unused: }") == [
        "exporters::out/unused::endpoint: required key is missing"
    ]


def test_the_name_of_a_pipeline_selects_its_signals() -> None:
    text = "service: {pipelines: {%s: {receivers: [in], exporters: [out]}}}"
    for name, signals in {"metrics/2": {"metrics"}, "traces": {"traces"}, "logs": {"logs"}, "gpu": ALL_SIGNALS}.items():
        assert settings_of(MINIMAL, text % name).pipelines[name].signals == signals


def test_a_text_key_gets_the_original_text_of_a_value() -> None:
    environ = {"ID": "0123", "LIST": "[x]", "MAP": "a: b", "YES": "true", "NONE": "null"}
    for name, text in environ.items():
        config = out_config(f'{{endpoint: "${{env:{name}}}", headers: {{x: "${{env:{name}}}"}}}}', environ)
        assert config.endpoint == text
        assert config.headers["x"].get_secret_value() == text
    settings = settings_of(MINIMAL)
    assert settings_of(MINIMAL, overrides=("exporters.out.path=0123",)).exporters["out"].config.path == "0123"  # type: ignore[attr-defined]  # OutConfig
    assert settings.exporters["out"].config.path == ""  # type: ignore[attr-defined]  # OutConfig


def test_an_unset_variable_is_an_empty_text_or_the_default() -> None:
    config = out_config('{path: "${NONE}", queue: {queue_size: "${NONE}"}, headers: "${NONE}", listen: "${NONE}"}')
    assert (config.path, config.queue.queue_size, config.headers, config.listen) == ("", 1000, {}, None)


def test_an_expanded_map_is_a_configuration() -> None:
    config = out_config('"${env:OUT}"', {"OUT": "{endpoint: x, listen: ':80', token: abc}"})
    assert config.listen == Address("", 80)
    (problem,) = problems(MINIMAL, 'exporters: {out: "${yaml:{endpoint: x, ratoi: 1}}"}')
    assert problem.startswith('exporters::out::ratoi: unknown key "ratoi"; did you mean "ratio"?')


def test_components_may_read_defaults_from_the_environment() -> None:
    text = MINIMAL.replace("{endpoint: here}", "")
    assert settings_of(text, environ={"OTEL_ENDPOINT": "there"}).exporters["out"].config.endpoint == "there"  # type: ignore[attr-defined]  # OutConfig


def test_extensions_are_enabled_by_reference() -> None:
    settings = settings_of(MINIMAL, "extensions: {health: , health/2: }\nservice: {extensions: [health/2]}")
    assert settings.extensions_enabled == ("health/2",)


def test_lists_of_ids_may_come_from_references() -> None:
    parts = "extensions: {health: }\nprocessors: {through: , 'through/2': }"
    text = "service: {extensions: ['${E}'], pipelines: {training: {processors: '${P}'}}}"
    settings = settings_of(MINIMAL, parts, text, environ={"E": "health", "P": "[through, through/2]"})
    assert settings.extensions_enabled == ("health",)
    assert settings.pipelines["training"].processors == ("through", "through/2")


def test_the_readers_of_the_own_metrics_follow_the_schema_of_the_collector() -> None:
    text = """
    service:
      telemetry:
        metrics:
          readers:
            - periodic:
                interval: 5000
                exporter: {otlp: {protocol: http/protobuf, endpoint: "http://x", headers: {key: s3cret}}}
            - pull: {exporter: {prometheus: {host: 0.0.0.0, port: 0}}}
    """
    push, pull = settings_of(MINIMAL, text).telemetry.metrics.readers
    assert push.periodic
    assert push.periodic.interval == 5
    assert push.periodic.exporter.otlp.headers == {"key": SecretStr("s3cret")}
    assert pull.pull
    assert pull.pull.exporter.prometheus.host == "0.0.0.0"


def settings_with(*enabled: str) -> Settings:
    tree = {
        "extensions": {"api": {"endpoint": "localhost:0"}, "query": {"url": "sqlite:///tmp/x.db"}},
        "service": {"extensions": [*enabled]},
    }
    return read_settings([f"yaml:{json.dumps(tree)}"], [], {}, Registry.installed())


def test_the_query_extension_needs_no_pipelines() -> None:
    assert settings_with("api", "query").pipelines == {}


@pytest.mark.parametrize("enabled", [(), ("api",)])
def test_other_extensions_need_a_pipeline(enabled: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="service::pipelines: must have at least one pipeline"):
        settings_with(*enabled)
