"""Every mistake in a configuration is reported with its path and a remedy."""

from pathlib import Path

import pytest

from otel_zernel.config.load import load
from otel_zernel.config.schema import validate
from otel_zernel.errors import ConfigError
from otel_zernel.registry import Registry
from tests.core.config.components import MINIMAL, REGISTRY, exporter_problem, problems, settings_of


def test_null_is_not_a_value_of_a_required_key() -> None:
    assert problems(MINIMAL, "exporters: {out: {endpoint: }}") == ["exporters::out::endpoint: required key is missing"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("outputs: []", "outputs: must have at least 1 item, not 0"),
        ("outputs: [gauge]", 'outputs::0: unknown value "gauge"; valid values: histogram, summary'),
    ],
)
def test_a_list_without_items_and_one_with_a_wrong_item_are_different_mistakes(given: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate(load([f"yaml:processors: {{percentiles: {{{given}}}}}"], [], {}), Registry.installed(), {})
    strs = [str(problem) for problem in refused.value.problems if "processors::percentiles" in str(problem)]
    assert [one.partition(" (")[0] for one in strs] == [f"processors::percentiles::{message}"]


def test_mistakes_are_followed_by_the_unset_variables_that_may_cause_them() -> None:
    mistake, cause = problems(MINIMAL, 'exporters: {out: {endpoint: "${env:GONE}", ratoi: 1}}')
    assert "ratoi" in mistake
    assert cause.startswith(': warning: environment variable "GONE" is not set')


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
        ("service: {piplines: }", 'service::piplines: unknown key "piplines"; did you mean "pipelines"?'),
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
        ("{procesors: }", '::procesors: unknown key "procesors"; did you mean "processors"?'),
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
        ("{logs: {levle: }}", '::logs::levle: unknown key "levle"; did you mean "level"?'),
        ("{logs: {level: loud}}", '::logs::level: unknown value "loud"; valid values: debug,'),
        ("{metrics: {readers: [{}]}}", "::metrics::readers::0: must have exactly one of the keys pull and periodic"),
        ("{resource: {a: [1]}}", "::resource::a: must be text"),
    ],
)
def test_a_mistake_in_telemetry_has_its_path_and_a_remedy(text: str, problem: str) -> None:
    (found,) = problems(MINIMAL, f"service: {{telemetry: {text}}}")
    assert found.startswith(f"service::telemetry{problem}")


def test_a_pipeline_of_profiles_has_components_that_say_that_they_take_them() -> None:
    found = problems(MINIMAL, "service: {pipelines: {profiles/x: {receivers: [in], exporters: [out]}}}")
    assert found == [
        f"service::pipelines::profiles/x: {component} profiles; remove it from the pipeline"
        for component in ('receiver "in" does not produce', 'exporter "out" does not accept')
    ]


def test_an_exporter_must_accept_a_signal_of_its_pipeline() -> None:
    text = "exporters: {metrics_out: }\nservice: {pipelines: {%s: {receivers: [in], exporters: [metrics_out]}}}"
    assert settings_of(MINIMAL, text % "metrics")
    assert settings_of(MINIMAL, text % "training/2")
    assert problems(MINIMAL, text % "traces") == [
        'service::pipelines::traces: exporter "metrics_out" does not accept traces; remove it from the pipeline'
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
