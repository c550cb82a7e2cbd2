"""The transforms of metrics do what their actions and operations say."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from pydantic import ValidationError

from otel_zernel import __version__
from otel_zernel.batch import Batch, points
from otel_zernel.component import PAUSE
from otel_zernel.otlp.points import key_values
from otel_zernel.testing import make_context
from otel_zernel_processors.metricstransform import MetricsTransformProcessor

Labels = dict[str, str]


def gauge(name: str, *values: tuple[float, Labels], unit: str = "") -> Metric:
    """A gauge. Integers stay integers."""
    metric = Metric(name=name, unit=unit)
    metric.gauge.SetInParent()
    for value, labels in values:
        point = metric.gauge.data_points.add(attributes=key_values(labels), time_unix_nano=1)
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
    return metric


def processor(*transforms: Mapping[str, Any]) -> MetricsTransformProcessor:
    config = MetricsTransformProcessor.Config.model_validate({"transforms": list(transforms)})
    return MetricsTransformProcessor(config, make_context("processors", "metricstransform"))


def batch_with(*metrics: Metric) -> Batch:
    message = MetricsData()
    resource = message.resource_metrics.add()
    resource.resource.attributes.extend(key_values({"host.name": "a"}))
    resource.scope_metrics.add(metrics=metrics)
    return Batch.from_bytes(metrics=message.SerializeToString())


def run(one: MetricsTransformProcessor, batch: Batch) -> MetricsData:
    """The metrics that come out, decoded from the batch's bytes."""
    [passed] = [output for output in one.process(batch) if output is not PAUSE]
    return MetricsData.FromString(passed.metrics_bytes())


def after(transforms: Sequence[Mapping[str, Any]], *metrics: Metric) -> dict[str, list[tuple[float, Labels]]]:
    """Value and labels of each number point, by the name of its metric."""
    message = run(processor(*transforms), batch_with(*metrics))
    return {
        metric.name: [_plain(point) for point in points(metric)]
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def _plain(point: Any) -> tuple[float, Labels]:
    value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
    return value, {pair.key: pair.value.string_value for pair in point.attributes}


def update(*operations: Mapping[str, Any], **options: Any) -> list[dict[str, Any]]:
    return [{"include": "m", "action": "update", "operations": list(operations), **options}]


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


def test_combine_joins_metrics_and_makes_labels_of_groups() -> None:
    transform = {
        "include": r"^req\.(?P<method>.*)\.(.*)$",
        "match_type": "regexp",
        "action": "combine",
        "new_name": "req",
        "aggregation_type": "sum",
        "submatch_case": "lower",
    }
    metrics = [gauge("req.GET.A", (1, {})), gauge("other", (5, {})), gauge("req.PUT.A", (2, {}))]
    assert after([transform], *metrics) == {
        "other": [(5, {})],
        "req": [(1, {"method": "get", "$2": "a"}), (2, {"method": "put", "$2": "a"})],
    }


def test_combined_points_with_equal_labels_are_aggregated() -> None:
    transform = {
        "include": "^m",
        "match_type": "regexp",
        "action": "combine",
        "new_name": "n",
        "aggregation_type": "mean",
    }
    assert after([transform], gauge("m1", (1.0, {"s": "a"})), gauge("m2", (2.0, {"s": "a"}))) == {
        "n": [(1.5, {"s": "a"})]
    }


def _sum(name: str, value: int, *, delta: bool = False) -> Metric:
    metric = Metric(name=name)
    metric.sum.aggregation_temporality = 1 if delta else 2  # type: ignore[assignment]  # the stubs want the enum
    metric.sum.data_points.add(as_int=value)
    return metric


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (gauge("m2", (1, {"s": "a"})), "the labels of m1 and m2 differ"),
        (gauge("m2", (1, {}), unit="W"), "the units of m1 () and m2 (W) differ"),
        (_sum("m2", 1), "the types of m1 and m2 differ"),
    ],
)
def test_metrics_that_do_not_fit_are_not_combined_and_warned_about_once(
    other: Metric, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    transform = {
        "include": "^m",
        "match_type": "regexp",
        "action": "combine",
        "new_name": "n",
        "aggregation_type": "sum",
    }
    one = processor(transform)
    for _ in range(2):
        [scope] = run(one, batch_with(gauge("m1", (1, {})), other)).resource_metrics[0].scope_metrics
        assert [metric.name for metric in scope.metrics] == ["m1", "m2"]
    assert [record.getMessage() for record in caplog.records] == [f"Cannot combine the metrics ^m: {reason}"]


def test_a_metric_without_data_is_not_combined() -> None:
    transform = {
        "include": "^m",
        "match_type": "regexp",
        "action": "combine",
        "new_name": "n",
        "aggregation_type": "sum",
    }
    batch = batch_with(Metric(name="m1"), Metric(name="m2"))
    assert run(processor(transform), batch) == batch.metrics


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


def test_delta_points_are_merged_only_if_they_begin_together() -> None:
    metric = _sum("m", 1, delta=True)
    metric.sum.data_points.add(as_int=2, start_time_unix_nano=5)
    metric.sum.data_points.add(as_int=4)
    operation = {"action": "aggregate_labels", "aggregation_type": "sum"}
    assert [value for value, _ in after(update(operation), metric)["m"]] == [5, 2]
    metric.sum.aggregation_temporality = 2  # type: ignore[assignment]  # as above
    assert [value for value, _ in after(update(operation), metric)["m"]] == [7]


def test_histograms_are_added_up_by_bucket() -> None:
    metric = Metric(name="m")
    for label, counts in (("a", [1, 2]), ("b", [3, 4])):
        metric.histogram.data_points.add(
            attributes=key_values({"s": label}),
            count=sum(counts),
            sum=1.5,
            min=counts[0],
            max=counts[1],
            bucket_counts=counts,
            explicit_bounds=[1],
        )
    operations: list[dict[str, Any]] = [
        {"action": "aggregate_labels", "aggregation_type": "sum"},
        {"action": "experimental_scale_value", "experimental_scale": 10},
    ]
    message = run(processor(*update(*operations)), batch_with(metric))
    [point] = message.resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points
    assert (point.count, point.sum, point.min, point.max) == (10, 30, 10, 40)
    assert (list(point.bucket_counts), list(point.explicit_bounds)) == ([4, 6], [10])


def test_exponential_histograms_with_different_offsets_are_added_up() -> None:
    metric = Metric(name="m")
    for offset, counts in ((2, [1, 1]), (0, [5]), (7, [])):
        point = metric.exponential_histogram.data_points.add(scale=1, count=sum(counts), zero_count=1)
        point.positive.offset = offset
        point.positive.bucket_counts.extend(counts)
    message = run(processor(*update({"action": "aggregate_labels", "aggregation_type": "sum"})), batch_with(metric))
    [merged] = message.resource_metrics[0].scope_metrics[0].metrics[0].exponential_histogram.data_points
    assert (merged.count, merged.zero_count, merged.positive.offset) == (7, 3, 0)
    assert list(merged.positive.bucket_counts) == [5, 0, 1, 1]


def test_a_batch_without_a_matching_metric_passes_as_the_bytes_that_arrived() -> None:
    batch = batch_with(gauge("x", (1, {})))
    before = batch.metrics_bytes()
    [passed] = processor(*update({"action": "toggle_scalar_data_type"})).process(batch)
    assert passed.metrics_bytes() is before


def test_a_copy_in_another_pipeline_is_not_changed() -> None:
    batch = batch_with(gauge("m", (1, {})))
    other = batch.copy()
    run(processor({"include": "m", "action": "update", "new_name": "n"}), batch)
    assert other.metrics.resource_metrics[0].scope_metrics[0].metrics[0].name == "m"


LABELS = st.fixed_dictionaries({"s": st.sampled_from("ab"), "t": st.sampled_from("xy")})


@given(st.lists(st.tuples(st.integers(-100, 100), LABELS), min_size=1, max_size=30))
def test_sums_over_labels_equal_a_naive_evaluation(values: list[tuple[int, Labels]]) -> None:
    operation = {"action": "aggregate_labels", "label_set": ["s"], "aggregation_type": "sum"}
    expected: dict[str, int] = {}
    for value, labels in values:
        expected[labels["s"]] = expected.get(labels["s"], 0) + value
    found = after(update(operation), gauge("m", *values))["m"]
    assert {labels["s"]: value for value, labels in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("kind", "expected"), [("mean", 3), ("min", 1), ("max", 7), ("count", 4), ("median", 2), ("sum", 12)]
)
def test_integers_stay_integers_when_aggregated(kind: str, expected: int) -> None:
    operation = {"action": "aggregate_labels", "aggregation_type": kind}
    [(value, _)] = after(update(operation), gauge("m", *((one, {}) for one in (1, 7, 2, 2))))["m"]
    assert (type(value), value) == (int, expected)


def test_long_work_is_split() -> None:
    many = gauge("m", *((number, {"n": str(number)}) for number in range(1000)))
    outputs = list(
        processor(*update({"action": "aggregate_labels", "aggregation_type": "sum"})).process(batch_with(many))
    )
    assert sum(one is PAUSE for one in outputs) >= 20
    assert outputs[-1].point_count == 1


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
