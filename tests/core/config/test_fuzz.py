"""Every configuration gives settings or error messages, never a traceback."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from otel_zernel.config.load import load
from otel_zernel.config.schema import read_settings, validate
from otel_zernel.config.show import dump, show
from otel_zernel.errors import ConfigError, Problem
from tests.core.config.components import MINIMAL, REGISTRY

VOCABULARY = """
    receivers processors exporters extensions service pipelines telemetry metrics logs traces readers pull periodic
    exporter prometheus otlp headers level sampling resource shutdown_timeout training metrics/1 in out in/2 out/x
    incomplete buggy broken through health interval layout tags timestamp columns endpoint queue queue_size enabled
    ratio listen path token dcgm 5s 5 :80 ${X} ${env:X:-1} ${Y} $${ ${file:/} << * : - [] {} null
"""
WORDS = st.sampled_from(VOCABULARY.split())
LEAVES = WORDS | st.none() | st.booleans() | st.integers(-1, 10**20) | st.floats() | st.text(max_size=4)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=25
)
SECTIONS = st.fixed_dictionaries(
    {},
    optional={
        "receivers": st.dictionaries(WORDS, TREES, max_size=3) | TREES,
        "exporters": st.dictionaries(st.just("out") | WORDS, TREES, max_size=3),
        "extensions": TREES,
        "service": st.dictionaries(WORDS, TREES, max_size=3)
        | st.fixed_dictionaries({"telemetry": TREES, "pipelines": st.dictionaries(WORDS, TREES)}),
    },
)


def problems(uris: list[str], overrides: list[str], environ: dict[str, str]) -> list[Problem]:
    try:
        read_settings(uris, overrides, environ, REGISTRY)
    except ConfigError as error:
        return error.problems
    return []


def assert_readable(uris: list[str], overrides: list[str], environ: dict[str, str]) -> None:
    for problem in problems(uris, overrides, environ):
        assert len(str(problem).splitlines()) == 1
        assert problem.message.strip()


@given(SECTIONS, SECTIONS, st.dictionaries(st.sampled_from("XY"), st.text(max_size=10) | WORDS))
def test_any_tree_gives_settings_or_messages(below: Any, above: Any, environ: dict[str, str]) -> None:
    assert_readable([f"yaml:{dump(below)}", f"yaml:{MINIMAL}", f"yaml:{dump(above)}"], [], environ)


@given(st.data())
def test_a_damaged_configuration_gives_settings_or_messages(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(MINIMAL)))
    end = data.draw(st.integers(start, min(start + 20, len(MINIMAL))))
    damage = data.draw(st.text(max_size=5) | WORDS)
    assert_readable([f"yaml:{MINIMAL[:start]}{damage}{MINIMAL[end:]}"], [], {})


@given(
    st.lists(st.text(max_size=20)), st.lists(st.text(max_size=20) | st.builds("{}.{}={}".format, WORDS, WORDS, WORDS))
)
@example([], ["0\x1e="])
def test_any_command_line_gives_settings_or_messages(texts: list[str], overrides: list[str]) -> None:
    assert_readable([f"yaml:{text}" for text in texts], overrides, {})


@given(st.text(max_size=50))
def test_settings_of_any_text_values_can_be_shown_and_read_again(text: str) -> None:
    tree = {"exporters": {"out": {"endpoint": text.replace("$", ""), "path": "x"}}}
    uris = [f"yaml:{MINIMAL}", f"yaml:{dump(tree)}"]
    try:
        loaded = load(uris, [], {})
    except ConfigError:
        return  # a lone surrogate
    valid = validate(loaded, REGISTRY, {})
    assert read_settings([f"yaml:{show(loaded, valid, False)}"], [], {}, REGISTRY) == valid
