"""The percentiles processor emits summaries of its input.

Batches of many resources and metrics lose those that are counted.
"""

import re

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from pydantic import ValidationError

from otel_zernel.batch import Batch
from otel_zernel_processors.percentiles import PercentilesProcessor
from tests.core.parts import metrics_of
from tests.processors.percentiles.running import RunningProcessor, fed, gauge, quantiles

SECOND = 1_000_000_000


def test_a_gauge_becomes_a_summary_with_its_name_unit_description_resource_and_scope() -> None:
    running = RunningProcessor()
    assert running.process(gauge([0.001, 0.002, 0.003], {"pid": 7, "api": "driver"})) == []
    running.clock.advance(10)
    [batch] = running.processor.tick(running.clock.time_ns())
    assert batch.point_count == 1
    [resource] = MetricsData.FromString(batch.bytes_of("metrics")).resource_metrics
    assert {pair.key for pair in resource.resource.attributes} == {"host.name", "gpu"}
    [scope] = resource.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("test", "1")
    [metric] = scope.metrics
    assert (metric.name, metric.unit, metric.description) == ("latency", "s", "How long.")
    [point] = metric.summary.data_points
    assert [pair.key for pair in point.attributes] == ["api", "pid"]
    assert point.count == 3
    assert point.sum == pytest.approx(0.006)
    assert point.start_time_unix_nano == running.clock.time_ns() - 10 * SECOND
    assert point.time_unix_nano == running.clock.time_ns()
    assert list(quantiles(point)) == [0, 0.5, 0.9, 0.99, 0.999, 1]


def test_without_extremes_a_summary_has_only_the_configured_quantiles() -> None:
    running = fed(gauge([value / 1000 for value in range(1, 101)]), quantiles=[0.99, 0.5], extremes=False)
    assert quantiles(running.point()) == pytest.approx({0.5: 0.05, 0.99: 0.099}, rel=1e-3)


@given(
    st.lists(st.lists(st.floats(0, 3600), min_size=1, max_size=50), min_size=1, max_size=5),
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
)
def test_quantiles_equal_those_of_hdrhistogram(batches: list[list[float]], wanted: list[float]) -> None:
    running = RunningProcessor({"quantiles": wanted, "significant_figures": 2})
    theirs = HdrHistogram(1, 3600 * SECOND, 2)
    for values in batches:
        running.process(gauge(values))
        for value in values:
            theirs.record_value(round(value * 1e9))
    expected = {q: theirs.get_value_at_percentile(q * 100) / 1e9 for q in {0.0, *wanted, 1.0}}
    assert quantiles(running.point()) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 10)), max_size=80))
def test_points_of_many_series_in_any_order_are_counted_separately(points: list[tuple[int, float]]) -> None:
    running = RunningProcessor()
    metric = Metric(name="latency", unit="s")
    for series, value in points:
        point = metric.gauge.data_points.add(time_unix_nano=1, as_double=value)
        point.attributes.add(key="series").value.int_value = series
    running.process(metric)
    found = {point.attributes[0].value.int_value: point for point in running.points()}
    expected = {series: [value for which, value in points if which == series] for series, _ in points}
    assert {series: point.count for series, point in found.items()} == {key: len(v) for key, v in expected.items()}
    assert {series: point.sum for series, point in found.items()} == pytest.approx(
        {key: sum(values) for key, values in expected.items()}
    )


def test_points_of_sums_are_values_whether_integer_or_double() -> None:
    running = RunningProcessor()
    metric = Metric(name="size", unit="By")
    metric.sum.is_monotonic = True
    metric.sum.data_points.add(as_int=5)
    metric.sum.data_points.add(as_double=7.0, time_unix_nano=3, start_time_unix_nano=2)
    metric.sum.data_points.add(as_int=11, time_unix_nano=3).exemplars.add(as_int=11)
    metric.sum.data_points.add(as_double=13.0, time_unix_nano=3).exemplars.add(as_double=13)
    running.process(metric)
    point = running.point()
    assert (point.count, point.sum) == (4, 36)
    assert quantiles(point)[0] == 5
    assert quantiles(point)[1] == 13


def test_points_without_a_value_are_not_counted() -> None:
    running = RunningProcessor()
    metric = Metric(name="size", unit="By")
    metric.gauge.data_points.add(as_double=0.0, flags=1)
    metric.gauge.data_points.add(time_unix_nano=3)
    metric.gauge.data_points.add()
    running.process(metric)
    assert running.points() == []
    assert running.dropped == {}


def test_the_order_of_attributes_does_not_matter() -> None:
    assert fed(gauge([1], {"a": "x", "b": "y"}), gauge([2], {"b": "y", "a": "x"})).point().count == 2


def test_nan_and_negative_values_are_dropped_and_counted() -> None:
    running = fed(gauge([1.0, float("nan"), -1.0, -0.0, float("-inf")]))
    assert running.dropped == {"nan": 1, "negative": 2}
    point = running.point()
    assert (point.count, point.sum) == (2, 1.0)


def test_values_above_max_value_count_as_max_value_and_are_counted() -> None:
    running = fed(gauge([1.0, 7200.0, 1e305, float("inf")]))
    assert running.clamped == 3
    point = running.point()
    assert (point.count, point.sum) == (4, 1 + 3 * 3600)
    assert quantiles(point)[1] == pytest.approx(3600, rel=1e-3)


def test_resolution_and_max_value_are_configurable() -> None:
    running = fed(gauge([0.2, 0.3, 99, 101], unit="Cel"), resolution=0.5, max_value=100)
    assert quantiles(running.point()) == {0: 0, 0.5: 0.5, 0.9: 100, 0.99: 100, 0.999: 100, 1: 100}


def test_the_window_rolls_while_count_and_sum_increase() -> None:
    running = fed(gauge([1]), window="20s")
    assert quantiles(running.point())[1] == pytest.approx(1, rel=1e-3)
    running.process(gauge([2]))
    assert quantiles(running.point())[0] == pytest.approx(1, rel=1e-3)
    running.process(gauge([4]))
    point = running.point()
    assert quantiles(point)[0] == pytest.approx(2, rel=1e-3)
    assert (point.count, point.sum) == (3, 7)
    running.tick()
    point = running.point()
    assert (point.count, point.sum, quantiles(point)) == (3, 7, {})


def test_since_start_covers_all_values() -> None:
    running = fed(gauge([1]), window="since_start")
    for _ in range(5):
        running.tick()
    running.process(gauge([2]))
    point = running.point()
    assert point.count == 2
    assert quantiles(point)[0] == pytest.approx(1, rel=1e-3)


def test_group_by_keeps_the_named_attributes_of_points_and_resources() -> None:
    running = RunningProcessor({"group_by": ["pid", "host.name"]})
    running.process(
        gauge([1], {"pid": 1, "api": "x"}, resource={"host.name": "a", "gpu": 0}),
        gauge([2], {"pid": 1, "api": "y"}, resource={"host.name": "a", "gpu": 1}),
        gauge([3], {"pid": 2, "api": "y"}, resource={"host.name": "a", "gpu": 1}),
    )
    points = running.points()
    assert [(point.attributes[0].value.int_value, point.sum) for point in points] == [(1, 3), (2, 3)]
    assert all(len(point.attributes) == 1 for point in points)


def test_series_beyond_the_limit_are_dropped_and_counted() -> None:
    running = RunningProcessor({"max_series": 2})
    for pid in range(4):
        running.process(gauge([1, 2, 3], {"pid": pid}))
    running.process(gauge([1], {"pid": 0}))
    assert running.dropped == {"max_series": 6}
    assert [point.count for point in running.points()] == [4, 3]


def test_idle_series_are_removed_and_free_their_slots() -> None:
    running = fed(gauge([1.0], {"pid": 1}), max_series=1, idle_timeout="15s", window="since_start")
    assert running.point().count == 1
    [end] = running.points()
    assert (end.flags, len(end.quantile_values)) == (1, 0)
    running.process(gauge([2.0], {"pid": 2}))
    point = running.point()
    assert (point.count, point.sum) == (1, 2)
    assert quantiles(point)[0] == pytest.approx(2, rel=1e-3)


def test_unlimited_input_series_merged_into_one_take_bounded_memory() -> None:
    running = RunningProcessor({"group_by": [], "max_series": 1})
    for request in range(100):
        running.process(gauge([1.0], {"request": request}, resource={"pod": request // 10}))
    assert running.point().count == 100
    assert sum(1 + len(slots) for slots in running.processor.aggregation._intake._slots_of.values()) <= 4


def test_many_batches_are_merged_without_losing_a_value() -> None:
    running = RunningProcessor({"window": "since_start", "significant_figures": 5})
    values = np.random.default_rng(0).lognormal(-8, 2, (30, 20_000))
    for some in values:
        running.process(gauge(some.tolist()))
    point = running.point()
    assert point.count == values.size
    assert quantiles(point)[0.5] == pytest.approx(np.quantile(values, 0.5), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"outputs": []}, "at least 1 item"),
        ({"outputs": ["summary", "summary"]}, "an output is listed twice: summary, summary; list each once"),
        ({"outputs": ["summary", "histogram"], "suffix": ""}, "would give the histogram and the summary one name"),
        ({"pass_through": True, "suffix": ""}, "an output would have the name of its input; choose another suffix"),
        ({"quantiles": [0.5]}, "only summaries have quantiles; add summary to outputs, or remove quantiles"),
        ({"outputs": ["summary"], "window": "5s"}, "the window (5 s) must not be shorter than the interval (10 s)"),
        ({"resolution": 1e-9, "max_value": 1e30}, "must be 2 to"),
        ({"quantiles": [1.5]}, "less than or equal to 1"),
        ({"significant_figures": 6}, "less than or equal to 5"),
        ({"interval": "0s"}, "greater than 0"),
    ],
)
def test_a_wrong_configuration_is_refused_with_a_reason(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(sentence)):
        PercentilesProcessor.Config.model_validate(options)


def test_a_batch_loses_many_counted_metrics_and_keeps_the_others() -> None:
    counted = [gauge([1.0], resource={"pid": pid}) for pid in range(5000)]
    other = gauge([1.0], name="other", resource={"pid": 0})
    running = RunningProcessor({"metrics": ["latency"], "suffix": ".p"})
    passed = running.process(Batch.join([*counted, other]))
    assert [metric.name for metric in metrics_of(passed)] == ["other"]
