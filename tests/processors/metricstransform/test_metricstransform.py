"""The transforms of metrics do what their actions and operations say."""

from typing import Any

import pytest
from pydantic import ValidationError

from otel_zernel import __version__
from tests.processors.metricstransform.transforming import after, batch_with, gauge, processor, run, update


def test_a_metric_is_renamed() -> None:
    renamed = {"include": "m", "action": "update", "new_name": "n"}
    assert after([renamed], gauge("m", (1, {})), gauge("m2", (2, {}))) == {"n": [(1, {})], "m2": [(2, {})]}


@pytest.mark.parametrize(
    ("include", "new_name", "expected"),
    [
        (r"^system\.(.*)\.(.*)$", "${2}.of.$1", "time.of.cpu"),
        (r"^system\.(?P<what>.*)\.", "x.${what}", "x.cpu"),
        ("cpu", "plain", "plain"),
        ("nothing", "plain", "system.cpu.time"),
    ],
)
def test_groups_of_the_expression_are_expanded_in_the_new_name(include: str, new_name: str, expected: str) -> None:
    transform = {"include": include, "match_type": "regexp", "action": "update", "new_name": new_name}
    assert list(after([transform], gauge("system.cpu.time", (1, {})))) == [expected]


def test_later_transforms_see_the_results_of_earlier_ones() -> None:
    first, second = ({"include": a, "action": "update", "new_name": b} for a, b in (("m", "n"), ("n", "o")))
    assert list(after([first, second], gauge("m", (1, {})))) == ["o"]
    assert list(after([second, first], gauge("m", (1, {})))) == ["n"]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (
            {"action": "add_label", "new_label": "k", "new_value": "v"},
            [(1, {"s": "a", "k": "v"}), (2, {"s": "b", "k": "v"})],
        ),
        ({"action": "add_label", "new_label": "s", "new_value": "v"}, [(1, {"s": "v"}), (2, {"s": "v"})]),
        ({"action": "update_label", "label": "s", "new_label": "t"}, [(1, {"t": "a"}), (2, {"t": "b"})]),
        ({"action": "update_label", "label": "x", "new_label": "t"}, [(1, {"s": "a"}), (2, {"s": "b"})]),
        (
            {"action": "update_label", "label": "s", "value_actions": [{"value": "a", "new_value": "z"}]},
            [(1, {"s": "z"}), (2, {"s": "b"})],
        ),
        ({"action": "delete_label_value", "label": "s", "label_value": "a"}, [(2, {"s": "b"})]),
        ({"action": "toggle_scalar_data_type"}, [(1.0, {"s": "a"}), (2.0, {"s": "b"})]),
        ({"action": "experimental_scale_value", "experimental_scale": 2.5}, [(2, {"s": "a"}), (5, {"s": "b"})]),
        ({"action": "aggregate_labels", "label_set": [], "aggregation_type": "sum"}, [(3, {})]),
        (
            {"action": "aggregate_labels", "label_set": ["s"], "aggregation_type": "sum"},
            [(1, {"s": "a"}), (2, {"s": "b"})],
        ),
        (
            {
                "action": "aggregate_label_values",
                "label": "s",
                "aggregated_values": ["a", "b"],
                "new_value": "c",
                "aggregation_type": "max",
            },
            [(2, {"s": "c"})],
        ),
    ],
)
def test_each_operation_on_data_points(operation: dict[str, Any], expected: list[Any]) -> None:
    found = after(update(operation), gauge("m", (1, {"s": "a"}), (2, {"s": "b"})))["m"]
    assert [(type(value), value, labels) for value, labels in found] == [
        (type(value), value, labels) for value, labels in expected
    ]


def test_a_double_becomes_an_integer_without_its_fraction_and_within_64_bits() -> None:
    values = [1.9, -1.9, float("nan"), float("inf"), -1e300]
    found = after(update({"action": "toggle_scalar_data_type"}), gauge("m", *((value, {}) for value in values)))["m"]
    assert [value for value, _ in found] == [1, -1, 0, 2**63 - 1, -(2**63)]


def test_the_version_is_inserted_into_label_values() -> None:
    operation = {"action": "add_label", "new_label": "by", "new_value": "v{{version}}"}
    assert after(update(operation), gauge("m", (1, {})))["m"] == [(1, {"by": f"v{__version__}"})]


def test_a_metric_without_points_left_vanishes() -> None:
    operation = {"action": "delete_label_value", "label": "s", "label_value": "a"}
    assert after(update(operation), gauge("m", (1, {"s": "a"})), gauge("n", (2, {}))) == {"n": [(2, {})]}
    assert run(processor(*update(operation)), batch_with(gauge("m", (1, {"s": "a"})))).resource_metrics == []


def test_insert_changes_a_copy_of_the_selected_points() -> None:
    transform = {
        "include": "m",
        "action": "insert",
        "new_name": "n",
        "experimental_match_labels": {"s": "a"},
        "operations": [
            {"action": "update_label", "label": "s", "new_label": "t"},
            {"action": "experimental_scale_value", "experimental_scale": 10},
        ],
    }
    metric = gauge("m", (1, {"s": "a"}), (2, {"s": "b"}))
    assert after([transform], metric) == {"m": [(1, {"s": "a"}), (2, {"s": "b"})], "n": [(10, {"t": "a"})]}


def test_match_labels_limit_an_update_to_their_points() -> None:
    scale = {"action": "experimental_scale_value", "experimental_scale": 10}
    metric = gauge("m", (1, {"s": "a"}), (2, {"s": "b"}), (3, {}))
    found = after(update(scale, experimental_match_labels={"s": "b"}), metric)["m"]
    assert [value for value, _ in found] == [1, 20, 3]
    options = {"experimental_match_labels": {"s": "^$"}, "match_type": "regexp"}
    assert [value for value, _ in after(update(scale, **options), metric)["m"]] == [1, 2, 30]


def test_group_moves_metrics_to_a_resource_with_more_attributes() -> None:
    transform = {
        "include": "^pod",
        "match_type": "regexp",
        "action": "group",
        "group_resource_labels": {"type": "pod", "host.name": "b"},
    }
    message = run(processor(transform), batch_with(gauge("pod.cpu", (1, {})), gauge("node.cpu", (2, {}))))
    found = [
        ({p.key: p.value.string_value for p in r.resource.attributes}, [m.name for m in r.scope_metrics[0].metrics])
        for r in message.resource_metrics
    ]
    assert found == [({"host.name": "a"}, ["node.cpu"]), ({"host.name": "b", "type": "pod"}, ["pod.cpu"])]
    [alone] = run(processor(transform), batch_with(gauge("pod.cpu", (1, {})))).resource_metrics
    assert len(alone.resource.attributes) == 2


@pytest.mark.parametrize(
    ("transform", "sentence"),
    [
        ({"include": "m", "action": "insert"}, "the action insert needs new_name"),
        ({"include": "m", "action": "combine", "new_name": "n"}, "needs aggregation_type"),
        ({"include": "m", "action": "group"}, "needs group_resource_labels"),
        ({"include": "(", "match_type": "regexp", "action": "update"}, "not a regular expression of RE2"),
        (update({"action": "add_label"})[0], "the action add_label needs new_label and new_value"),
        (update({"action": "experimental_scale_value"})[0], "needs experimental_scale"),
        (update({"action": "scale"})[0], "experimental_scale_value"),
        ({"action": "update"}, "Field required"),
    ],
)
def test_a_wrong_configuration_is_refused_with_a_reason(transform: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        processor(transform)
