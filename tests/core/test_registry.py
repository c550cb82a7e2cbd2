"""Installed types are found by their entry points, and every problem with one is a clear message."""

import importlib
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from otel_zernel.component import Component, Exporter, Extension
from otel_zernel.delivery_config import RemoteExporterConfig
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
    package = tmp_path / "other_plugin"
    package.mkdir()
    (package / "__init__.py").write_text("from other_plugin.code import First, Second")
    (package / "code.py").write_text(CODE)
    (package / "sample.yaml").write_text(SAMPLE)
    (package / "README.md").write_text("# Other\n")
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[otel_zernel.extensions]\n"
        "first = other_plugin:First\nsecondthing = other_plugin:Second\nsecond_thing = other_plugin:Second\n"
        "gone = other_plugin.nowhere:Gone\nnothing = other_plugin:CODE\nodd = other_plugin:code\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield package.name
    for name in [name for name in sys.modules if name.startswith(package.name)]:
        del sys.modules[name]


def test_a_third_party_plugin_is_found_and_imported_only_when_it_is_loaded(plugin: str) -> None:
    registry = Registry.installed()
    assert {"first", "second_thing"} <= set(registry.types("extensions"))
    assert plugin not in sys.modules
    assert issubclass(registry.load("extensions", "first"), Extension)
    assert plugin in sys.modules


def test_aliases_are_listed_under_the_name_with_the_most_underscores(plugin: str) -> None:
    registry = Registry.installed()
    assert registry.aliases("extensions")["second_thing"] == ["secondthing"]
    assert registry.aliases("extensions")["first"] == []
    assert registry.load("extensions", "secondthing") is registry.load("extensions", "second_thing")


def test_a_sample_is_the_block_of_the_type_with_its_comments(plugin: str) -> None:
    registry = Registry.installed()
    assert registry.sample("extensions", "first") == SAMPLE.partition("\n# About the second")[0]
    assert registry.sample("extensions", "second_thing") == "# About the second.\nsecond_thing:\n    c: 3\n"
    assert registry.sample("extensions", "secondthing") == registry.sample("extensions", "second_thing")
    assert registry.readme("extensions", "first") == "# Other\n"


@pytest.mark.parametrize(
    ("type_", "sentence"),
    [
        ("frist", 'unknown type "frist"; did you mean "first"? valid types: '),
        ("gone", "type \"gone\" cannot be imported: ModuleNotFoundError: No module named 'other_plugin.nowhere'"),
        ("nothing", 'type "nothing" cannot be imported: AttributeError: '),
        ("odd", "is not a class of extensions: its entry point names"),
    ],
)
def test_a_type_that_cannot_be_loaded_is_one_message_on_one_line(plugin: str, type_: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Registry.installed().load("extensions", type_)
    (problem,) = caught.value.problems
    assert sentence in problem.message
    assert len(str(problem).splitlines()) == 1


def test_a_component_of_another_kind_is_refused() -> None:
    registry = Registry({"receivers": {"health": lambda: Extension}})
    with pytest.raises(ConfigError, match="is not a class of receivers"):
        registry.load("receivers", "health")


def test_an_exporter_whose_delivery_and_settings_disagree_is_refused() -> None:
    class Careless(Exporter):
        Config = RemoteExporterConfig

    registry = Registry({"exporters": {"careless": lambda: Careless}})
    with pytest.raises(ConfigError, match="its delivery must be 'remote'"):
        registry.load("exporters", "careless")


def test_a_missing_sample_or_readme_is_reported() -> None:
    class Bare(Extension):
        __module__ = Component.__module__

    registry = Registry({"extensions": {"bare": lambda: Bare}})
    for missing, read in (("sample.yaml", registry.sample), ("README.md", registry.readme)):
        with pytest.raises(ConfigError, match=f'type "bare" has no {missing} in its package'):
            read("extensions", "bare")


def test_the_components_of_this_project_are_registered_as_entry_points() -> None:
    registry = Registry.installed()
    assert all(registry.types(kind) for kind in KINDS)
    assert registry.aliases("exporters")["otlp_grpc"] == ["otlp"]
    assert registry.aliases("exporters")["otlp_http"] == ["otlphttp"]


def test_if_two_packages_define_a_type_the_first_on_the_path_wins() -> None:
    def found() -> EntryPoints:
        classes = ("Extension", "Receiver")
        return EntryPoints(EntryPoint("x", f"otel_zernel.component:{one}", "otel_zernel.extensions") for one in classes)

    assert Registry.installed(found).load("extensions", "x") is Extension
