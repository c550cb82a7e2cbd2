"""The names, types and batches of the outputs, and the metrics that pass through."""

from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, Summary
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from tests.core.parts import metrics_of
from tests.otlp import data, traces
from tests.processors.percentiles.running import RunningProcessor, fed, gauge, quantiles


def test_only_selected_metrics_are_removed_from_a_batch() -> None:
    running = RunningProcessor({"metrics": ["a.*", "b"]})
    batch = Batch.join([gauge([1], name=name) for name in ("a.x", "b", "c", "a.y", "bb")])
    assert [metric.name for metric in metrics_of(running.process(batch))] == ["c", "bb"]
    assert [metric.name for metric in running.tick()] == ["a.x", "a.y", "b"]


def test_a_copy_of_the_batch_in_another_pipeline_keeps_its_metrics() -> None:
    running = RunningProcessor()
    batch = gauge([1.0])
    copy = batch.copy()
    running.process(batch)
    assert copy.point_count == 1


def test_summaries_and_spans_pass_through() -> None:
    running = RunningProcessor()
    summary = Batch(metrics=data(Metric(name="latency", summary=Summary())))
    [passed] = running.process(summary)
    assert passed is summary
    [passed] = running.process(Batch(metrics=gauge([1]).metrics, spans=traces(Span(name="step"))))
    assert (passed.count_of("traces"), "metrics" in passed.signals) == (1, False)


NAMES = [
    ({}, "latency.distribution", "latency"),
    ({"outputs": ["summary"]}, "latency.percentiles", "latency.percentiles"),
    ({"outputs": ["summary"], "suffix": ""}, "latency", "latency"),
    ({"suffix": ".hdr"}, "latency.hdr", "latency.hdr"),
    ({"pass_through": True}, "latency.distribution", "latency.distribution"),
]


@pytest.mark.parametrize(("options", "of_gauge", "of_histogram"), NAMES)
def test_a_metric_never_changes_its_type_under_its_name(
    options: dict[str, Any], of_gauge: str, of_histogram: str
) -> None:
    for kind, expected in (("gauge", of_gauge), ("sum", of_gauge), ("histogram", of_histogram)):
        running = fed(metric_of(kind), **{"outputs": ["histogram"], **options})
        assert [metric.name for metric in running.tick()] == [expected]


def metric_of(kind: str) -> Metric:
    """A metric `latency` of this kind with the value 1."""
    metric = Metric(name="latency", unit="s")
    if kind == "histogram":
        metric.histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        metric.histogram.data_points.add(count=1, bucket_counts=[1, 0], explicit_bounds=[1.0])
    else:
        getattr(metric, kind).data_points.add(as_double=1.0)
    return metric


def test_a_gauge_and_a_histogram_of_one_name_stay_apart() -> None:
    running = fed(metric_of("gauge"), metric_of("histogram"), outputs=["histogram"])
    assert [metric.name for metric in running.tick()] == ["latency.distribution", "latency"]


def test_with_pass_through_the_input_keeps_its_name_and_the_outputs_get_a_suffix() -> None:
    running = RunningProcessor({"pass_through": True, "outputs": ["summary", "histogram"]})
    batch = gauge([1.0])
    [passed] = running.process(batch)
    assert passed is batch
    assert [metric.name for metric in running.tick()] == ["latency.percentiles", "latency.distribution"]


def test_flush_emits_values_since_the_last_tick_once() -> None:
    running = RunningProcessor()
    assert list(running.processor.flush()) == []
    running.process(gauge([1.0]))
    running.tick()
    assert list(running.processor.flush()) == []
    running.process(gauge([2.0]))
    [metric] = metrics_of(running.processor.flush())
    assert metric.summary.data_points[0].count == 2
    assert list(running.processor.flush()) == []


def test_series_that_do_not_fit_into_one_batch_are_all_emitted() -> None:
    running = RunningProcessor()
    for pid in range(600):
        running.process(gauge([pid], {"pid": pid}))
    points = running.points()
    assert sorted(point.sum for point in points) == list(range(600))
    assert all(quantiles(point)[0.5] == pytest.approx(point.sum, rel=1e-3) for point in points)
