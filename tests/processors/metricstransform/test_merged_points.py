"""Metrics that are combined, and points that become one by `aggregate_labels`, have the sums of their parts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel.otlp.points import key_values
from tests.otlp import exponential, histogram
from tests.processors.metricstransform.transforming import Labels, after, batch_with, gauge, processor, run, update


def combining(include: str, new_name: str, aggregation: str = "sum", **options: str) -> dict[str, str]:
    """A transform that makes one metric of several."""
    selection = {"include": include, "match_type": "regexp", "action": "combine", "new_name": new_name}
    return {**selection, "aggregation_type": aggregation, **options}


def test_combine_joins_metrics_and_makes_labels_of_groups() -> None:
    transform = combining(r"^req\.(?P<method>.*)\.(.*)$", "req", submatch_case="lower")
    metrics = [gauge("req.GET.A", (1, {})), gauge("other", (5, {})), gauge("req.PUT.A", (2, {}))]
    assert after([transform], *metrics) == {
        "other": [(5, {})],
        "req": [(1, {"method": "get", "$2": "a"}), (2, {"method": "put", "$2": "a"})],
    }


def test_combined_points_with_equal_labels_are_aggregated() -> None:
    found = after([combining("^m", "n", "mean")], gauge("m1", (1.0, {"s": "a"})), gauge("m2", (2.0, {"s": "a"})))
    assert found == {"n": [(1.5, {"s": "a"})]}


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
    combine = processor(combining("^m", "n"))
    for _ in range(2):
        [scope] = run(combine, batch_with(gauge("m1", (1, {})), other)).resource_metrics[0].scope_metrics
        assert [metric.name for metric in scope.metrics] == ["m1", "m2"]
    assert [record.getMessage() for record in caplog.records] == [f"Cannot combine the metrics ^m: {reason}"]


def test_a_metric_without_data_is_not_combined() -> None:
    batch = batch_with(Metric(name="m1"), Metric(name="m2"))
    assert run(processor(combining("^m", "n")), batch) == batch.metrics


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
        [point] = histogram("m", [1], counts, 1.5).histogram.data_points
        point.attributes.extend(key_values({"s": label}))
        point.min, point.max = counts
        metric.histogram.data_points.append(point)
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
    for positive in ((2, [1, 1]), (0, [5]), (7, [])):
        points = exponential("m", 1, positive, zero_count=1).exponential_histogram.data_points
        metric.exponential_histogram.data_points.extend(points)
    message = run(processor(*update({"action": "aggregate_labels", "aggregation_type": "sum"})), batch_with(metric))
    [merged] = message.resource_metrics[0].scope_metrics[0].metrics[0].exponential_histogram.data_points
    assert (merged.count, merged.zero_count, merged.positive.offset) == (10, 3, 0)
    assert list(merged.positive.bucket_counts) == [5, 0, 1, 1]


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
    [(value, _)] = after(update(operation), gauge("m", *((value, {}) for value in (1, 7, 2, 2))))["m"]
    assert (type(value), value) == (int, expected)
