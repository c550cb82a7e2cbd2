from pathlib import Path

import pytest
from pydantic import SecretStr

from otel_zernel.config.load import load
from otel_zernel.config.schema import validate
from otel_zernel.errors import ConfigError
from otel_zernel.types import Address
from tests.core.config.components import MINIMAL, REGISTRY, In, Out, out_config, settings_of


def complaints(*texts: str, environ: dict[str, str] | None = None) -> list[str]:
    """The problems of YAML texts, without their sources."""
    with pytest.raises(ConfigError) as caught:
        settings_of(*texts, environ=environ)
    return [f"{one.path}: {one.message}" for one in caught.value.problems]


def complaint(text: str) -> str:
    """The one problem of a flow mapping of the `out` exporter's options."""
    (only,) = complaints(MINIMAL, f"exporters: {{out: {text}}}")
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


def test_null_does_not_stand_in_for_what_is_required() -> None:
    assert complaints(MINIMAL, "exporters: {out: {endpoint: }}") == ["exporters::out::endpoint: required"]


def test_unused_components_are_legal_but_checked() -> None:
    assert "out/unused" in settings_of(MINIMAL, "exporters: {out/unused: {endpoint: x}}").exporters
    assert complaints(MINIMAL, "exporters: {out/unused: }") == ["exporters::out/unused::endpoint: required"]


def test_a_pipelines_name_decides_its_signals() -> None:
    text = "service: {pipelines: {%s: {receivers: [in], exporters: [out]}}}"
    for name, signals in {"metrics/2": {"metrics"}, "traces": {"traces"}, "gpu": {"metrics", "traces"}}.items():
        assert settings_of(MINIMAL, text % name).pipelines[name].signals == signals


def test_text_keeps_its_original_where_text_is_wanted() -> None:
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


def test_a_mistake_that_an_unset_variable_may_have_made_names_it() -> None:
    mistake, cause = complaints(MINIMAL, 'exporters: {out: {endpoint: "${env:GONE}", ratoi: 1}}')
    assert "ratoi" in mistake
    assert cause.startswith(': environment variable "GONE" is not set')


def test_an_expanded_map_is_a_configuration() -> None:
    config = out_config('"${env:OUT}"', {"OUT": "{endpoint: x, listen: ':80', token: abc}"})
    assert config.listen == Address("", 80)
    (problem,) = complaints(MINIMAL, 'exporters: {out: "${yaml:{endpoint: x, ratoi: 1}}"}')
    assert problem.startswith('exporters::out::ratoi: unknown key "ratoi"; did you mean "ratio"?')


def test_components_get_the_environment_for_fall_backs() -> None:
    text = MINIMAL.replace("{endpoint: here}", "")
    assert settings_of(text, environ={"OTEL_ENDPOINT": "there"}).exporters["out"].config.endpoint == "there"  # type: ignore[attr-defined]  # OutConfig


@pytest.mark.parametrize(
    ("options", "sentence"),
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
        ("{queue: [1]}", "::queue: must be a mapping"),
        ("{ratio: much}", "::ratio: must be a number"),
        ("{ratio: 2}", "::ratio: must be at most 1"),
        ("{path: 5}", "::path: must be text; put it in quotes"),
        ("{listen: nowhere}", "::listen: not an address to listen on: 'nowhere'; write localhost:9091"),
        ("{headers: {a: [1]}}", "::headers::a: must be text"),
        ("{headers: [a]}", "::headers: must be a mapping"),
        ("{token: a, headers: {b: c}}", ": token and headers exclude each other"),
        ("[]", ": must be a mapping"),
        ("text", ": must be a mapping"),
    ],
)
def test_a_mistake_in_a_component_is_told_with_path_and_remedy(options: str, sentence: str) -> None:
    assert complaint(options).startswith(sentence)


@pytest.mark.parametrize(
    ("layout", "problem"),
    [
        ("dcgn", '::layout: unknown value "dcgn"; did you mean "dcgm"? valid values: dcgm, wide, or must be a mapping'),
        (
            "{timestmp: t}",
            '::layout::timestmp: unknown key "timestmp"; did you mean "timestamp"? valid keys: columns, timestamp',
        ),
        ("{timestamp: t, columns: {a: x}}", "::layout::columns::a: must be a whole number"),
        ("{}", "::layout::timestamp: required"),
    ],
)
def test_of_alternatives_the_closest_one_complains(layout: str, problem: str) -> None:
    found = complaints(MINIMAL, f"receivers: {{in: {{layout: {layout}}}}}")
    assert f"receivers::in{problem}" in found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("recievers: {}", 'recievers: unknown section; did you mean "receivers"? valid sections: exporters,'),
        ("receivers: [in]", "receivers: must be a mapping"),
        ("receivers: {inn: }", 'receivers::inn: unknown type "inn"; did you mean "in"? valid types: in, lame'),
        ("receivers: {1in: }", 'receivers::1in: "1in" is no type: it has letters'),
        ("receivers: {in/: }", "receivers::in/: the name after / must be printable"),
        ("receivers: {'in/ ': }", "receivers::in/ : the name after /"),
        ('receivers: {"in/\\n": }', 'receivers::"in/\\n": the name after /'),
        (
            "extensions: {broken: }",
            'extensions::broken: type "broken" cannot be imported: ImportError: No module named',
        ),
        ("extensions: {careless: }", "extensions::careless: cannot be checked: KeyError in the component's own check"),
        ("service: {pipelines: null}", "service::pipelines: must have at least one"),
        ("service: {pipelines: [x]}", "service::pipelines: must be a mapping"),
        ("service: null", "service::pipelines: must have at least one"),
        ("service: text", "service: must be a mapping"),
        ("service: {piplines: {}}", 'service::piplines: unknown key "piplines"; did you mean "pipelines"?'),
        ("service: {shutdown_timeout: 5}", "service::shutdown_timeout: a duration needs a unit: 5s, 5ms, 5m"),
        ("service: {extensions: [healt]}", 'service::extensions: references extension "healt" which is not configured'),
        ("service: {extensions: health}", "service::extensions: must be a list"),
        ("service: {pipelines: {'my pipe': {}}}", 'service::pipelines::my pipe: "my pipe" is no type'),
    ],
)
def test_a_mistake_in_the_house_is_told_with_path_and_remedy(text: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in complaints(MINIMAL, text)), complaints(MINIMAL, text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("null", ": must have at least one receiver"),
        ("text", ": must be a mapping"),
        ("{exporters: []}", ": must have at least one exporter"),
        ("{exporters: out}", "::exporters: must be a list"),
        ("{receivers: [in, in]}", ': references receiver "in" more than once'),
        ("{receivers: [in/2]}", ': references receiver "in/2" which is not configured; did you mean "in"?'),
        ("{procesors: []}", '::procesors: unknown key "procesors"; did you mean "processors"?'),
    ],
)
def test_a_mistake_in_a_pipeline_is_told_with_path_and_remedy(text: str, problem: str) -> None:
    found = complaints(MINIMAL, f"service: {{pipelines: {{training: {text}}}}}")
    assert any(one.startswith(f"service::pipelines::training{problem}") for one in found), found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{logs: {levle: info}}", '::logs::levle: unknown key "levle"; did you mean "level"?'),
        ("{logs: {level: loud}}", '::logs::level: unknown value "loud"; valid values: debug,'),
        ("{metrics: {readers: [{}]}}", "::metrics::readers::0: must have either pull or periodic"),
        ("{resource: {a: [1]}}", "::resource::a: must be text"),
    ],
)
def test_a_mistake_in_telemetry_is_told_with_path_and_remedy(text: str, problem: str) -> None:
    (found,) = complaints(MINIMAL, f"service: {{telemetry: {text}}}")
    assert found.startswith(f"service::telemetry{problem}")


def test_otelcols_signals_that_are_not_carried_are_refused() -> None:
    (found,) = complaints(MINIMAL, "service: {pipelines: {logs/x: {receivers: [in], exporters: [out]}}}")
    assert found == "service::pipelines::logs/x: a pipeline carries metrics and traces, not logs"


def test_an_exporter_must_take_what_its_pipeline_carries() -> None:
    text = "exporters: {metrics_out: }\nservice: {pipelines: {%s: {receivers: [in], exporters: [metrics_out]}}}"
    assert settings_of(MINIMAL, text % "metrics")
    assert settings_of(MINIMAL, text % "training/2")
    assert complaints(MINIMAL, text % "traces") == [
        'service::pipelines::traces: exporter "metrics_out" does not take traces'
    ]


def test_a_mistake_in_an_exporter_does_not_hide_one_in_its_pipeline() -> None:
    text = (
        "exporters: {metrics_out: {x: 1}}\nservice: {pipelines: {traces: {receivers: [in], exporters: [metrics_out]}}}"
    )
    assert len(complaints(MINIMAL, text)) == 2


def test_a_missing_package_matters_only_to_those_who_use_it() -> None:
    assert settings_of(MINIMAL, "receivers: {lame: }")
    used = "receivers: {lame: }\nservice: {pipelines: {training: {receivers: [lame]}}}"
    assert complaints(MINIMAL, used) == ["receivers::lame: needs pyarrow: pip install 'otel-zernel[csv]'"]


def test_extensions_are_enabled_by_reference() -> None:
    settings = settings_of(MINIMAL, "extensions: {health: , health/2: }\nservice: {extensions: [health/2]}")
    assert settings.extensions_enabled == ("health/2",)


def test_references_may_come_by_expansion() -> None:
    parts = "extensions: {health: }\nprocessors: {through: , 'through/2': }"
    text = "service: {extensions: ['${E}'], pipelines: {training: {processors: '${P}'}}}"
    settings = settings_of(MINIMAL, parts, text, environ={"E": "health", "P": "[through, through/2]"})
    assert settings.extensions_enabled == ("health",)
    assert settings.pipelines["training"].processors == ("through", "through/2")


def test_own_metrics_go_out_as_in_otelcol() -> None:
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


def test_all_mistakes_are_told_at_once_in_the_files_order(tmp_path: Path) -> None:
    file = tmp_path / "zernel.yaml"
    file.write_text(MISTAKEN)
    with pytest.raises(ConfigError) as caught:
        validate(load([str(file)], [], {}), REGISTRY, {})
    assert str(caught.value).replace(f"{file}:", "").splitlines() == [
        'service::pipelines::training: references exporter "nop" which is not configured; valid exporters: out (7)',
        "receivers::in::interval: a duration needs a unit: 5s, 5ms, 5m (10)",
        'receivers::in::tag: unknown key "tag"; did you mean "tags"? valid keys: interval, layout, tags (11)',
        "exporters::out::endpoint: required (13)",
    ]


def test_no_secret_is_ever_told() -> None:
    for options in ("{token: [hunter2]}", "{headers: {a: {b: hunter2}}}", "{headers: [hunter2]}", "hunter2"):
        assert "hunter2" not in complaint(options)
