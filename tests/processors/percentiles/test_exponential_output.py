"""The output `histogram`: exponential histograms that can be merged."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, ExponentialHistogramDataPoint, Metric

from tests.processors.percentiles.running import RunningProcessor, fed, gauge

OPTIONS = {"outputs": ["histogram"]}


def histogram(running: RunningProcessor) -> ExponentialHistogramDataPoint:
    [metric] = running.tick()
    assert metric.exponential_histogram.aggregation_temporality == 2
    [point] = metric.exponential_histogram.data_points
    return point


@given(st.lists(st.floats(1e-9, 3600), min_size=1, max_size=60))
def test_every_value_lies_in_its_bucket_within_the_precision_of_the_counters(values: list[float]) -> None:
    running = fed(gauge(values, {"pid": 7}), **OPTIONS)
    point = histogram(running)
    counts = np.array(point.positive.bucket_counts, np.int64)
    assert len(counts) <= 160
    assert counts.sum() == point.count == len(values)
    assert point.zero_count == 0
    upper = np.exp2(np.ldexp(np.arange(len(counts)) + point.positive.offset + 1.0, -point.scale))
    sort = np.sort(np.repeat(upper, counts))
    width = 2.0 ** (2.0**-point.scale)
    rounded = np.sort(np.maximum(np.rint(np.array(values) * 1e9), 1)) / 1e9
    assert (rounded <= sort * 1.001).all()
    assert (rounded >= sort / width / 1.001).all()
    assert point.attributes[0].key == "pid"


@given(st.lists(st.lists(st.floats(1e-9, 3600), max_size=20), min_size=2, max_size=6))
def test_values_of_many_intervals_are_in_the_buckets_of_all_values_at_once(steps: list[list[float]]) -> None:
    assume(steps[-1])
    running, at_once = RunningProcessor(OPTIONS), RunningProcessor(OPTIONS)
    for values in steps:
        running.process(gauge(values))
        point = running.tick()
    at_once.process(gauge([value for values in steps for value in values]))
    stepwise, whole = point[0].exponential_histogram.data_points[0], histogram(at_once)
    assert stepwise.positive == whole.positive
    assert (stepwise.scale, stepwise.count) == (whole.scale, whole.count)
    assert (stepwise.min, stepwise.max) == (whole.min, whole.max)


def test_its_minimum_and_maximum_are_those_of_all_values() -> None:
    running = RunningProcessor(OPTIONS)
    for values in ([1.0, 2.0], [0.5], [0.0, 8.0]):
        running.process(gauge(values))
        point = histogram(running)
    assert point.min == 0
    assert point.max == pytest.approx(8, rel=1e-3)


def test_a_series_in_a_reused_slot_has_none_of_the_former_values() -> None:
    running = fed(gauge([1.0, 1e-6], {"pid": 7}), **OPTIONS, max_series=1, idle_timeout="15s")
    running.tick()
    running.tick(30)
    running.process(gauge([2.0], {"pid": 8}))
    point = histogram(running)
    assert (point.count, point.scale) == (1, 20)
    assert point.min == pytest.approx(2, rel=1e-3)


def test_it_is_cumulative() -> None:
    running = fed(gauge([1.0]), **OPTIONS)
    first = histogram(running)
    running.process(gauge([2.0, 0.0]))
    second = histogram(running)
    assert (first.count, second.count, second.zero_count) == (1, 3, 1)
    assert second.sum == pytest.approx(3)
    assert second.start_time_unix_nano == first.start_time_unix_nano
    assert second.zero_threshold == pytest.approx(0.5e-9)


def test_a_single_value_is_in_one_bucket_at_the_finest_scale() -> None:
    running = fed(gauge([0.5, 0.5]), **OPTIONS)
    point = histogram(running)
    assert (list(point.positive.bucket_counts), point.scale) == ([2], 20)


def with_exemplars(*values: float, temporality: int = 1) -> Metric:
    """A histogram whose values are exemplars, each with its own trace."""
    metric = Metric(name="latency", unit="s")
    metric.histogram.aggregation_temporality = temporality  # type: ignore[assignment]  # an enum's number
    point = metric.histogram.data_points.add(count=len(values), sum=sum(values), start_time_unix_nano=1)
    point.explicit_bounds.append(10.0)
    point.bucket_counts.extend([len(values), 0])
    point.exemplars.extend(Exemplar(as_double=value, trace_id=bytes([int(value * 10)] * 16)) for value in values)
    return metric


def test_it_has_the_exemplars_since_the_last_output() -> None:
    running = fed(with_exemplars(0.1, 0.3), with_exemplars(0.2), **OPTIONS)
    assert [exemplar.trace_id[0] for exemplar in histogram(running).exemplars] == [1, 3, 2]
    running.process(with_exemplars(0.4))
    assert [exemplar.as_double for exemplar in histogram(running).exemplars] == [0.4]


def test_it_keeps_the_largest_of_many_exemplars() -> None:
    running = fed(*(with_exemplars(n / 10) for n in range(40)), **OPTIONS)
    assert sorted(exemplar.trace_id[0] for exemplar in histogram(running).exemplars) == list(range(24, 40))


def test_a_repeated_exemplar_of_a_cumulative_histogram_is_emitted_once() -> None:
    running = fed(*(with_exemplars(0.1, temporality=2) for _ in range(3)), **OPTIONS)
    assert len(histogram(running).exemplars) == 1


def test_a_new_series_in_a_reused_slot_has_no_old_exemplars() -> None:
    running = fed(with_exemplars(0.1), **OPTIONS, max_series=1, idle_timeout="15s")
    running.clock.advance(30)
    running.tick()  # removed before its exemplars were emitted
    running.process(gauge([1.0], {"pid": 8}))
    assert not histogram(running).exemplars
