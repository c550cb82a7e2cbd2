import importlib
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from otel_zernel.component import Component, Extension
from otel_zernel.errors import ConfigError
from otel_zernel.registry import KINDS, Registry

SAMPLE = """\
# About the first.
first:
  # An option.
  a: 1

  b: [2]

# About the second.
second_thing:
    c: 3
"""

CODE = """\
from otel_zernel.component import Extension

class First(Extension): ...
class Second(Extension): ...
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a package with two extensions, installed as a distribution of its own."""
    package = tmp_path / "strange_plugin"
    package.mkdir()
    (package / "__init__.py").write_text("from strange_plugin.code import First, Second")
    (package / "code.py").write_text(CODE)
    (package / "sample.yaml").write_text(SAMPLE)
    (package / "README.md").write_text("# Strange\n")
    info = tmp_path / "strange-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[otel_zernel.extensions]\n"
        "first = strange_plugin:First\nsecondthing = strange_plugin:Second\nsecond_thing = strange_plugin:Second\n"
        "gone = strange_plugin.nowhere:Gone\nnothing = strange_plugin:CODE\nodd = strange_plugin:code\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield package.name
    for name in [name for name in sys.modules if name.startswith(package.name)]:
        del sys.modules[name]


def test_a_strangers_plugin_is_found_and_imported_only_when_asked_for(plugin: str) -> None:
    registry = Registry.installed()
    assert {"first", "second_thing"} <= set(registry.types("extensions"))
    assert plugin not in sys.modules
    assert issubclass(registry.load("extensions", "first"), Extension)
    assert plugin in sys.modules


def test_aliases_are_listed_under_the_most_spelled_out_name(plugin: str) -> None:
    registry = Registry.installed()
    assert registry.aliases("extensions")["second_thing"] == ["secondthing"]
    assert registry.aliases("extensions")["first"] == []
    assert registry.load("extensions", "secondthing") is registry.load("extensions", "second_thing")


def test_a_sample_is_the_types_block_with_its_comments(plugin: str) -> None:
    registry = Registry.installed()
    assert registry.sample("extensions", "first") == SAMPLE.partition("\n# About the second")[0]
    assert registry.sample("extensions", "second_thing") == "# About the second.\nsecond_thing:\n    c: 3\n"
    assert registry.sample("extensions", "secondthing") == registry.sample("extensions", "second_thing")
    assert registry.readme("extensions", "first") == "# Strange\n"


@pytest.mark.parametrize(
    ("type_", "sentence"),
    [
        ("frist", 'unknown type "frist"; did you mean "first"? valid types: '),
        ("gone", "type \"gone\" cannot be imported: ModuleNotFoundError: No module named 'strange_plugin.nowhere'"),
        ("nothing", 'type "nothing" cannot be imported: AttributeError: '),
        ("odd", "is not a class of extensions: its entry point names"),
    ],
)
def test_what_cannot_be_loaded_is_one_sentence(plugin: str, type_: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Registry.installed().load("extensions", type_)
    (problem,) = caught.value.problems
    assert sentence in problem.message
    assert len(str(problem).splitlines()) == 1


def test_a_component_of_another_kind_is_refused() -> None:
    registry = Registry({"receivers": {"health": lambda: Extension}})
    with pytest.raises(ConfigError, match="is not a class of receivers"):
        registry.load("receivers", "health")


def test_a_type_without_a_sample_says_so() -> None:
    class Bare(Extension):
        __module__ = Component.__module__

    registry = Registry({"extensions": {"bare": lambda: Bare}})
    for missing, read in (("sample.yaml", registry.sample), ("README.md", registry.readme)):
        with pytest.raises(ConfigError, match=f'type "bare" has no {missing} in its package'):
            read("extensions", "bare")


def test_our_own_components_come_in_by_the_same_door() -> None:
    registry = Registry.installed()
    assert all(registry.types(kind) for kind in KINDS)
    assert registry.aliases("exporters")["otlp_grpc"] == ["otlp"]
    assert registry.aliases("exporters")["otlp_http"] == ["otlphttp"]


def test_of_two_offers_of_one_type_the_first_on_the_path_counts(monkeypatch: pytest.MonkeyPatch) -> None:

    def offered(group: str) -> EntryPoints:
        return EntryPoints(
            EntryPoint("x", f"otel_zernel.component:{name}", group) for name in ("Extension", "Receiver")
        )

    monkeypatch.setattr("otel_zernel.registry.entry_points", offered)
    assert Registry.installed().load("extensions", "x") is Extension
