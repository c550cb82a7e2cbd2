from pathlib import Path

import pytest
from pydantic import SecretStr

from otel_zernel.config.load import load
from otel_zernel.config.schema import validate
from otel_zernel.errors import ConfigError
from otel_zernel.types import Address
from tests.core.config.components import MINIMAL, REGISTRY, In, Out, out_config, settings_of


def problems(*texts: str, environ: dict[str, str] | None = None) -> list[str]:
    """The problems of YAML texts, without their sources."""
    with pytest.raises(ConfigError) as caught:
        settings_of(*texts, environ=environ)
    return [f"{one.path}: {one.message}" for one in caught.value.problems]


def exporter_problem(text: str) -> str:
    """The single problem of the `out` exporter with these options, without the exporter's path."""
    (only,) = problems(MINIMAL, f"exporters: {{out: {text}}}")
    return only.removeprefix("exporters::out")


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


def test_null_is_not_a_value_of_a_required_key() -> None:
    assert problems(MINIMAL, "exporters: {out: {endpoint: }}") == ["exporters::out::endpoint: required key is missing"]


def test_unused_components_are_allowed_and_validated() -> None:
    assert "out/unused" in settings_of(MINIMAL, "exporters: {out/unused: {endpoint: x}}").exporters
    assert problems(MINIMAL, "exporters: {out/unused: }") == [
        "exporters::out/unused::endpoint: required key is missing"
    ]


def test_the_name_of_a_pipeline_selects_its_signals() -> None:
    text = "service: {pipelines: {%s: {receivers: [in], exporters: [out]}}}"
    for name, signals in {"metrics/2": {"metrics"}, "traces": {"traces"}, "gpu": {"metrics", "traces"}}.items():
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


def test_mistakes_are_followed_by_the_unset_variables_that_may_cause_them() -> None:
    mistake, cause = problems(MINIMAL, 'exporters: {out: {endpoint: "${env:GONE}", ratoi: 1}}')
    assert "ratoi" in mistake
    assert cause.startswith(': environment variable "GONE" is not set')


def test_an_expanded_map_is_a_configuration() -> None:
    config = out_config('"${env:OUT}"', {"OUT": "{endpoint: x, listen: ':80', token: abc}"})
    assert config.listen == Address("", 80)
    (problem,) = problems(MINIMAL, 'exporters: {out: "${yaml:{endpoint: x, ratoi: 1}}"}')
    assert problem.startswith('exporters::out::ratoi: unknown key "ratoi"; did you mean "ratio"?')


def test_components_may_read_defaults_from_the_environment() -> None:
    text = MINIMAL.replace("{endpoint: here}", "")
    assert settings_of(text, environ={"OTEL_ENDPOINT": "there"}).exporters["out"].config.endpoint == "there"  # type: ignore[attr-defined]  # OutConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "{endpont: x}",
            '::endpont: unknown key "endpont"; did you mean "endpoint"? valid keys: endpoint, headers, listen,',
        ),
        (
            "{queue: {que_size: 1}}",
            '::queue::que_size: unknown key "que_size"; did you mean "queue_size"? valid keys: enabled,',
        ),
        (
            "{queue: {queue_size: 0}}",
            "::queue::queue_size: must be at least 1",
        ),
        ("{queue: {queue_size: many}}", "::queue::queue_size: must be a whole number"),
        ("{queue: {queue_size: 1.5}}", "::queue::queue_size: must be a whole number"),
        ("{queue: {enabled: maybe}}", "::queue::enabled: must be true or false"),
        ("{queue: [1]}", "::queue: must be a mapping, such as {key: value}"),
        ("{ratio: much}", "::ratio: must be a number"),
        ("{ratio: 2}", "::ratio: must be at most 1"),
        ("{path: 5}", "::path: must be text; put the value in quotes"),
        ("{listen: nowhere}", "::listen: not an address to listen on: 'nowhere'; write localhost:9091"),
        ("{headers: {a: [1]}}", "::headers::a: must be text"),
        ("{headers: [a]}", "::headers: must be a mapping, such as {key: value}"),
        ("{token: a, headers: {b: c}}", ": token and headers exclude each other"),
        ("[]", ": must be a mapping, such as {key: value}"),
        ("text", ": must be a mapping, such as {key: value}"),
    ],
)
def test_a_mistake_in_a_component_has_its_path_and_a_remedy(options: str, message: str) -> None:
    assert exporter_problem(options).startswith(message)


@pytest.mark.parametrize(
    ("layout", "problem"),
    [
        (
            "dcgn",
            (
                '::layout: unknown value "dcgn"; did you mean "dcgm"? valid values: dcgm, wide; '
                "or must be a mapping, such as {key: value}"
            ),
        ),
        (
            "{timestmp: t}",
            '::layout::timestmp: unknown key "timestmp"; did you mean "timestamp"? valid keys: columns, timestamp',
        ),
        ("{timestamp: t, columns: {a: x}}", "::layout::columns::a: must be a whole number"),
        ("{}", "::layout::timestamp: required key is missing"),
    ],
)
def test_a_mistake_in_a_union_is_reported_for_the_best_matching_member(layout: str, problem: str) -> None:
    found = problems(MINIMAL, f"receivers: {{in: {{layout: {layout}}}}}")
    assert f"receivers::in{problem}" in found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "recievers: {}",
            'recievers: unknown section "recievers"; did you mean "receivers"? valid sections: exporters,',
        ),
        ("receivers: [in]", "receivers: must be a mapping, such as {key: value}"),
        ("receivers: {inn: }", 'receivers::inn: unknown type "inn"; did you mean "in"? valid types: in, incomplete'),
        ("receivers: {1in: }", 'receivers::1in: "1in" is not a valid type: use at most 63 letters, digits and _'),
        ("receivers: {in/: }", "receivers::in/: the name after / must be printable"),
        ("receivers: {'in/ ': }", "receivers::in/ : the name after /"),
        ('receivers: {"in/\\n": }', 'receivers::"in/\\n": the name after /'),
        (
            "extensions: {broken: }",
            'extensions::broken: type "broken" cannot be imported: ImportError: No module named',
        ),
        (
            "extensions: {buggy: }",
            "extensions::buggy: the component's own validation failed with KeyError; report this bug to its author",
        ),
        ("service: {pipelines: null}", "service::pipelines: must have at least one pipeline"),
        ("service: {pipelines: [x]}", "service::pipelines: must be a mapping, such as {key: value}"),
        ("service: null", "service::pipelines: must have at least one pipeline"),
        ("service: text", "service: must be a mapping, such as {key: value}"),
        ("service: {piplines: {}}", 'service::piplines: unknown key "piplines"; did you mean "pipelines"?'),
        ("service: {shutdown_timeout: 5}", "service::shutdown_timeout: a duration needs a unit: 5s, 5ms, 5m"),
        ("service: {extensions: [healt]}", 'service::extensions: references extension "healt" which is not configured'),
        ("service: {extensions: health}", "service::extensions: must be a list, such as [a, b]"),
        ("service: {pipelines: {'my pipe': {}}}", 'service::pipelines::my pipe: "my pipe" is not a valid type'),
    ],
)
def test_a_mistake_in_a_section_has_its_path_and_a_remedy(text: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems(MINIMAL, text)), problems(MINIMAL, text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("null", ": must have at least one receiver"),
        ("text", ": must be a mapping, such as {key: value}"),
        ("{exporters: []}", ": must have at least one exporter"),
        ("{exporters: out}", "::exporters: must be a list"),
        ("{receivers: [in, in]}", ': references receiver "in" more than once; keep one'),
        ("{receivers: [in/2]}", ': references receiver "in/2" which is not configured; did you mean "in"?'),
        ("{procesors: []}", '::procesors: unknown key "procesors"; did you mean "processors"?'),
    ],
)
def test_a_mistake_in_a_pipeline_has_its_path_and_a_remedy(text: str, problem: str) -> None:
    found = problems(MINIMAL, f"service: {{pipelines: {{training: {text}}}}}")
    assert any(one.startswith(f"service::pipelines::training{problem}") for one in found), found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{logs: {levle: info}}", '::logs::levle: unknown key "levle"; did you mean "level"?'),
        ("{logs: {level: loud}}", '::logs::level: unknown value "loud"; valid values: debug,'),
        ("{metrics: {readers: [{}]}}", "::metrics::readers::0: must have exactly one of the keys pull and periodic"),
        ("{resource: {a: [1]}}", "::resource::a: must be text"),
    ],
)
def test_a_mistake_in_telemetry_has_its_path_and_a_remedy(text: str, problem: str) -> None:
    (found,) = problems(MINIMAL, f"service: {{telemetry: {text}}}")
    assert found.startswith(f"service::telemetry{problem}")


def test_pipelines_of_unsupported_signals_are_mistakes() -> None:
    (found,) = problems(MINIMAL, "service: {pipelines: {logs/x: {receivers: [in], exporters: [out]}}}")
    assert found == "service::pipelines::logs/x: a pipeline carries metrics or traces; logs are not supported"


def test_an_exporter_must_accept_a_signal_of_its_pipeline() -> None:
    text = "exporters: {metrics_out: }\nservice: {pipelines: {%s: {receivers: [in], exporters: [metrics_out]}}}"
    assert settings_of(MINIMAL, text % "metrics")
    assert settings_of(MINIMAL, text % "training/2")
    assert problems(MINIMAL, text % "traces") == [
        'service::pipelines::traces: exporter "metrics_out" does not accept traces; remove it from here'
    ]


def test_a_mistake_in_an_exporter_does_not_hide_one_in_its_pipeline() -> None:
    text = (
        "exporters: {metrics_out: {x: 1}}\nservice: {pipelines: {traces: {receivers: [in], exporters: [metrics_out]}}}"
    )
    assert len(problems(MINIMAL, text)) == 2


def test_a_missing_package_is_a_mistake_only_if_its_component_is_used() -> None:
    assert settings_of(MINIMAL, "receivers: {incomplete: }")
    used = "receivers: {incomplete: }\nservice: {pipelines: {training: {receivers: [incomplete]}}}"
    assert problems(MINIMAL, used) == ["receivers::incomplete: needs pyarrow: pip install 'otel-zernel[csv]'"]


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


MISTAKEN = """\
service:
  pipelines:
    training:
      receivers: [in]
      exporters:
        - out
        - nop
receivers:
  in:
    interval: 5
    tag: wide
exporters:
  out: {}
"""


def test_all_mistakes_are_reported_together_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "zernel.yaml"
    file.write_text(MISTAKEN)
    with pytest.raises(ConfigError) as caught:
        validate(load([str(file)], [], {}), REGISTRY, {})
    assert str(caught.value).replace(f"{file}:", "").splitlines() == [
        'service::pipelines::training: references exporter "nop" which is not configured; valid exporters: out (7)',
        "receivers::in::interval: a duration needs a unit: 5s, 5ms, 5m (10)",
        'receivers::in::tag: unknown key "tag"; did you mean "tags"? valid keys: interval, layout, tags (11)',
        "exporters::out::endpoint: required key is missing (13)",
    ]


def test_no_message_has_a_secret() -> None:
    for options in ("{token: [hunter2]}", "{headers: {a: {b: hunter2}}}", "{headers: [hunter2]}", "hunter2"):
        assert "hunter2" not in exporter_problem(options)
