"""`--set` reaches keys with dots and items of lists, and says what is wrong with a key."""

from typing import Any

import pytest

from otel_zernel.config.load import load
from otel_zernel.errors import ConfigError

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
