"""The actions of relabelling, with the cases of Prometheus' documentation."""

from typing import Any

import pytest

from otel_zernel_receivers.prometheus.config.relabel import RelabelConfig
from otel_zernel_receivers.prometheus.relabelling.rules import relabel, relabel_rules

LABELS = {"a": "foo", "b": "bar", "c": "baz"}


def changed(*rules: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, str] | None:
    compiled = relabel_rules([RelabelConfig.model_validate(rule) for rule in rules])
    return relabel(labels or LABELS, compiled)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"source_labels": ["a"], "regex": "f(.*)", "target_label": "d", "replacement": "ch${1}-$1"}, {"d": "choo-oo"}),
        ({"source_labels": ["a", "b"], "target_label": "d"}, {"d": "foo;bar"}),
        ({"source_labels": ["a", "b"], "separator": "", "target_label": "d"}, {"d": "foobar"}),
        ({"source_labels": ["a"], "regex": "oo", "target_label": "d"}, {}),
        ({"source_labels": ["a"], "regex": "no", "target_label": "b", "replacement": "x"}, {}),
        ({"target_label": "d", "replacement": "constant"}, {"d": "constant"}),
        ({"target_label": "a", "replacement": ""}, {"a": ""}),
        ({"source_labels": ["a"], "regex": "(f)(?P<n>.*)", "target_label": "${1}x", "replacement": "$n"}, {"fx": "oo"}),
        ({"source_labels": ["a"], "regex": "(.*)", "target_label": "0$1"}, {}),
        ({"source_labels": ["a"], "action": "uppercase", "target_label": "d"}, {"d": "FOO"}),
        ({"source_labels": ["a"], "action": "Lowercase", "target_label": "d"}, {"d": "foo"}),
        ({"regex": "(b)", "action": "labelmap", "replacement": "x_${1}"}, {"x_b": "bar"}),
        ({"regex": "a|c", "action": "labeldrop"}, {"a": "", "c": ""}),
        ({"regex": "b", "action": "labelkeep"}, {"a": "", "c": ""}),
        # The value is that of Prometheus' own test.
        ({"source_labels": ["c"], "action": "hashmod", "modulus": 1000, "target_label": "d"}, {"d": "976"}),
    ],
)
def test_an_action_changes_labels(rule: dict[str, Any], expected: dict[str, str]) -> None:
    assert changed(rule) == {name: value for name, value in (LABELS | expected).items() if value}


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ({"source_labels": ["a"], "regex": "foo", "action": "keep"}, True),
        ({"source_labels": ["a"], "regex": "fo", "action": "keep"}, False),
        ({"source_labels": ["a"], "regex": "foo", "action": "drop"}, False),
        ({"source_labels": ["a"], "regex": ".*o", "action": "drop"}, False),
        ({"source_labels": ["a"], "regex": "o", "action": "drop"}, True),
        ({"source_labels": ["missing"], "regex": "", "action": "keep"}, True),
        ({"source_labels": ["a"], "target_label": "a", "action": "keepequal"}, True),
        ({"source_labels": ["a"], "target_label": "b", "action": "keepequal"}, False),
        ({"source_labels": ["a"], "target_label": "a", "action": "dropequal"}, False),
        ({"source_labels": ["a"], "target_label": "b", "action": "dropequal"}, True),
    ],
)
def test_an_action_keeps_or_drops(rule: dict[str, Any], kept: bool) -> None:
    assert (changed(rule) is not None) is kept


def test_rules_run_in_order_and_a_drop_ends_them() -> None:
    first = {"source_labels": ["a"], "target_label": "d", "replacement": "x"}
    assert changed(first, {"source_labels": ["d"], "regex": "x", "action": "drop"}) is None
    assert changed(first, {"source_labels": ["d"], "target_label": "e"}) == {**LABELS, "d": "x", "e": "x"}


def test_an_expression_of_exponential_time_for_others_ends_at_once() -> None:
    assert changed({"source_labels": ["a"], "regex": "(x+x+)+y", "action": "drop"}, labels={"a": "x" * 50_000})


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"regex": "("}, "not a regular expression"),
        ({"action": "hashmod", "target_label": "a"}, "modulus"),
        ({"action": "replace"}, "target_label"),
        ({"action": "labeldrop", "source_labels": ["a"]}, "remove source_labels"),
        ({"action": "keepequal", "target_label": "a"}, "source_labels"),
        ({"action": "vanish"}, "action"),
    ],
)
def test_a_wrong_rule_is_one_sentence(rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RelabelConfig.model_validate(rule)
