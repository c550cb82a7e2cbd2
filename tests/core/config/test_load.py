"""

`--set` reaches keys with dots and items of lists, and says what is wrong with a key.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.config.load import load, merge
from otel_zernel.errors import ConfigError


def tree_of(*texts: str, overrides: tuple[str, ...] = (), environ: dict[str, str] | None = None) -> dict[str, Any]:
    return load([f"yaml:{text}" for text in texts], overrides, environ or {}).tree


def error_text(uri: str, *overrides: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load([uri], overrides, environ or {})
    return str(caught.value)


def test_later_files_win_mappings_merge_lists_are_replaced_and_null_resets() -> None:
    below = "a: {x: 1, y: [1, 2], z: {deep: 1}}\nb: 1"
    above = "a: {y: [3], z: null}\nc: 2"
    assert tree_of(below, above) == {"a": {"x": 1, "y": [3], "z": None}, "b": 1, "c": 2}


def test_overrides_win_and_use_dots_or_colons() -> None:
    tree = tree_of("a: {b: 1}", overrides=("a.b=2", "a::service.name=x", "a.c=[1, 2]", "d={e: f}", "a.b=3", "g="))
    assert tree == {"a": {"b": 3, "service.name": "x", "c": [1, 2]}, "d": {"e": "f"}, "g": None}


def test_an_override_keeps_its_text_until_null_resets_it() -> None:
    assert load([], ["a.b=0123"], {}).originals == {("a", "b"): "0123"}
    assert load([], ["a.b=0123", "a.b=null"], {}).originals == {}
    assert load([], ["a.b=0123", "a=1"], {}).originals == {("a",): "1"}


def test_a_configuration_comes_from_paths_and_schemes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa: 1")
    uris = [str(tmp_path / "a.yaml"), f"file:{tmp_path}/a.yaml", "env:CONFIG", "yaml:c::d: 3"]
    loaded = load(uris, ["e=5"], {"CONFIG": "b: ${env:X}", "X": "2"})
    assert loaded.tree == {"a": 1, "b": 2, "c": {"d": 3}, "e": 5}
    assert loaded.sources["a",] == f"{tmp_path}/a.yaml:1"
    assert loaded.sources["b",] == "env:CONFIG:1"
    assert loaded.sources["e",] == "--set e"


def test_an_empty_file_changes_nothing() -> None:
    assert tree_of("", "# only a comment") == {}


def test_every_value_has_a_file_and_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a:\n  b: 1\n  c: {d: 1}\n")
    (tmp_path / "b.yaml").write_text("\n\na: {b: 2}\n")
    sources = load([f"{tmp_path}/a.yaml", f"{tmp_path}/b.yaml"], ["a.c=1"], {}).sources
    assert sources["a", "b"] == f"{tmp_path}/b.yaml:3"
    assert sources["a",] == f"{tmp_path}/a.yaml:1"
    assert sources["a", "c"] == "--set a.c"
    assert ("a", "c", "d") not in sources


def test_an_unset_variable_is_a_warning_with_its_line() -> None:
    loaded = load(["yaml:a: {b: 'x${NONE}'}"], [], {})
    assert loaded.warnings == (
        'environment variable "NONE" is not set and is read as empty; set it, or write ${NONE:-default} (yaml:1)',
    )


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("/no/such.yaml", 'cannot read "/no/such.yaml": No such file or directory'),
        ("/", 'cannot read "/": Is a directory'),
        ("http://x/y", "No such file or directory"),
        ("env:NONE", 'environment variable "NONE" is not set'),
        ("yaml:[1]", "must be a mapping of sections"),
        ("yaml:just text", "must be a mapping of sections"),
        ("yaml:a: ${env:1}", 'a: "1" is not a valid name of an environment variable'),
        ("yaml:a: {b: [x, '${']}", "a::b::1: ${ has no closing }"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_one_line(uri: str, message: str) -> None:
    (line,) = error_text(uri).splitlines()
    assert message in line


def test_a_file_that_is_not_utf_8_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"a: 1\nb: \xe9\n")
    expected = f'cannot read "{tmp_path}/a.yaml": line 2 is not UTF-8 text; save it as UTF-8'
    assert error_text(f"{tmp_path}/a.yaml") == expected


def test_the_mistakes_of_all_sources_are_reported() -> None:
    assert len(error_text("/no/such.yaml", "novalue", "=x", "a..b=1").splitlines()) == 4


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner), max_leaves=12
)
MAPS = st.dictionaries(st.sampled_from("abc"), TREES)


def leaves(tree: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """All values other than mappings, and the empty mappings, by path."""
    if not isinstance(tree, dict) or not tree:
        return {path: tree}
    return {at: leaf for key, value in tree.items() for at, leaf in leaves(value, (*path, key)).items()}


@given(MAPS, MAPS)
def test_merging_keeps_all_upper_values_and_the_lower_values_at_other_paths(
    below: dict[str, Any], above: dict[str, Any]
) -> None:
    merged = leaves(merge(below, above))
    upper = leaves(above)
    assert {path: merged[path] for path, leaf in upper.items() if leaf != {}} == {
        path: leaf for path, leaf in upper.items() if leaf != {}
    }
    for path, leaf in leaves(below).items():
        if not any(path[: len(other)] == other[: len(path)] for other in upper):
            assert merged[path] == leaf


@given(MAPS)
def test_merging_with_nothing_or_itself_changes_nothing(tree: dict[str, Any]) -> None:
    assert merge(tree, {}) == merge({}, tree) == merge(tree, tree) == tree


BASE = """
exporters:
  prometheus: {label_names: {host.name: host}, const_labels: {}}
receivers:
  csv: {files: [a, b], columns: [{name: x, scale: 1}]}
"""


def tree_after(*overrides: str) -> dict[str, Any]:
    return load([f"yaml:{BASE}"], overrides, {}).tree


@pytest.mark.parametrize(
    "override",
    [
        'exporters.prometheus.const_labels."k8s.pod.name"=x',
        "exporters.prometheus.const_labels.'k8s.pod.name'=x",
        'exporters::prometheus::const_labels::"k8s.pod.name"=x',
        "exporters::prometheus::const_labels::k8s.pod.name=x",
    ],
)
def test_a_key_with_dots_is_quoted_or_joined_by_colons(override: str) -> None:
    assert tree_after(override)["exporters"]["prometheus"]["const_labels"] == {"k8s.pod.name": "x"}


def test_a_key_with_dots_that_the_configuration_has_needs_no_quotes() -> None:
    names = tree_after("exporters.prometheus.label_names.host.name=h")["exporters"]["prometheus"]["label_names"]
    assert names == {"host.name": "h"}


def test_quotes_keep_equals_signs_and_colons() -> None:
    assert load([], ['a."b=c::d"=1'], {}).tree == {"a": {"b=c::d": 1}}


def test_a_number_is_the_index_of_a_list_and_the_next_one_appends() -> None:
    csv = tree_after("receivers.csv.files.1=c", "receivers.csv.files.2=d")["receivers"]["csv"]
    assert csv["files"] == ["a", "c", "d"]


def test_a_value_inside_an_item_keeps_the_rest_of_the_item() -> None:
    csv = tree_after("receivers.csv.columns.0.scale=0.01", "receivers.csv.columns.1={name: y}")["receivers"]["csv"]
    assert csv["columns"] == [{"name": "x", "scale": 0.01}, {"name": "y"}]


def test_a_number_is_a_key_where_no_list_is() -> None:
    tree = tree_after("exporters.prometheus.const_labels.0=x", "receivers.csv.other.7=x")
    assert tree["exporters"]["prometheus"]["const_labels"] == {"0": "x"}
    assert tree["receivers"]["csv"]["other"] == {"7": "x"}


def test_index_0_of_nothing_begins_a_list() -> None:
    csv = tree_after("receivers.csv.exclude.0=x", "receivers.csv.exclude.1.name=y")["receivers"]["csv"]
    assert csv["exclude"] == ["x", {"name": "y"}]


def test_a_value_is_yaml_and_a_mapping_is_merged() -> None:
    prometheus = tree_after("exporters.prometheus={namespace: n, const_labels: {a: '1'}}")["exporters"]["prometheus"]
    assert prometheus == {"label_names": {"host.name": "host"}, "const_labels": {"a": "1"}, "namespace": "n"}


def test_an_item_has_the_override_as_its_source_and_the_others_keep_their_lines() -> None:
    loaded = load([f"yaml:{BASE}"], ["receivers.csv.files.1=0123"], {})
    files = ("receivers", "csv", "files")
    assert loaded.sources[*files, 1] == "--set receivers.csv.files.1"
    assert loaded.sources[*files, 0] == "yaml:5"
    assert loaded.originals[*files, 1] == "0123"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "receivers.csv.files.3=x",
            'receivers::csv::files has 2 items, and "3" is not the index of one; the first is 0, and 2 appends one',
        ),
        ("receivers.csv.columns.9=x", "has 1 item, and"),
        ("receivers.csv.files.first=x", '"first" is not the index of one'),
        ('a."b=1', 'write a.b.c=value, a::b::c=value, a."key.with.dots"=value, or a.list.0=value'),
        ("a.b", "invalid --set"),
        ("=1", "invalid --set"),
        ("a..b=1", "invalid --set"),
    ],
)
def test_a_wrong_key_is_a_clear_error(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        tree_after(override)
    assert message in str(raised.value)


def test_all_mistakes_in_overrides_are_reported() -> None:
    with pytest.raises(ConfigError) as raised:
        tree_after("a", "receivers.csv.files.9=x", "b.c=1")
    assert len(raised.value.problems) == 2
