"""Delta input: only an exact repetition is dropped."""

from collections.abc import Callable

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel.batch import points
from otel_zernel_processors.percentiles.intake.intake import RepeatedDeltas
from tests.processors.percentiles.running import RunningProcessor, of_metric
from tests.processors.percentiles.test_histograms import explicit, exponential


@pytest.mark.parametrize("make", [explicit, exponential], ids=["explicit", "exponential"])
def test_a_repeated_delta_counts_once_and_a_late_one_that_fills_a_gap_counts(make: Callable[..., Metric]) -> None:
    running, counted = RunningProcessor(), []
    second = 10**9
    for start, end in ((1, 2), (2, 3), (2, 3), (5, 6), (3, 5), (3, 5), (1, 2), (6, 7)):
        metric = explicit([2], []) if make is explicit else exponential([2], scale=0, offset=0)
        (point,) = points(metric)
        point.start_time_unix_nano, point.time_unix_nano = start * second, end * second
        running.process(of_metric(metric))
        counted.append(running.point().count)
    assert counted == [2, 4, 4, 6, 8, 8, 8, 10]
    assert running.dropped == {"repeated": 3}


def delta(count: int, start: float, end: float, *, rank: int = 0) -> Metric:
    metric = explicit([count], [], start=round(start * 1e9))
    [point] = metric.histogram.data_points
    point.time_unix_nano = round(end * 1e9)
    point.attributes.add(key="rank").value.int_value = rank
    return metric


def test_deltas_of_two_senders_with_equal_attributes_add_up() -> None:
    running = RunningProcessor()
    for tick in range(1, 10):
        running.process(of_metric(delta(1, tick + 0.5, tick + 1.5)), of_metric(delta(1, tick, tick + 1)))
    running.process(of_metric(delta(2, 5, 6)))
    assert running.point().count == 20
    assert running.dropped == {}


def test_merged_series_may_be_more_than_the_limit() -> None:
    running = RunningProcessor({"max_series": 5, "group_by": []})
    for tick in range(1, 3):
        for rank in range(100):
            running.process(of_metric(delta(1, tick, tick + 1, rank=rank)))
    assert running.point().count == 200
    assert running.dropped == {}


def test_the_memory_of_deltas_forgets_the_oldest_ones() -> None:
    repeated = RepeatedDeltas(most=10)
    points = [delta(1, tick, tick + 1).histogram.data_points[0] for tick in range(1, 101)]
    assert all(repeated.add("series", point) for point in points)
    assert not any(repeated.add("series", point) for point in points[-10:])
    assert repeated.add("series", points[0])
    assert repeated.add("other", points[-1])


def test_a_delta_with_an_infinite_bound_counts() -> None:
    running = RunningProcessor()
    metric = explicit([1, 1, 0], [1.0, float("inf")], sum=1.0)
    metric.histogram.data_points[0].time_unix_nano = 10**9
    running.process(of_metric(metric))
    assert running.point().count == 2
    assert running.dropped == {}
