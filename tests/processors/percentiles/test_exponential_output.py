"""The exponential histogram that comes out on request."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint

from tests.processors.percentiles.running import Running, gauge

OPTIONS = {"exponential_histogram": True, "window": "10s"}


def histogram(running: Running) -> ExponentialHistogramDataPoint:
    summary, metric = running.tick()
    assert (summary.name, metric.name) == ("latency", "latency.histogram")
    assert metric.exponential_histogram.aggregation_temporality == 2
    [point] = metric.exponential_histogram.data_points
    return point


@given(st.lists(st.floats(1e-9, 3600), min_size=1, max_size=60))
def test_every_value_lies_in_its_bucket_within_the_precision_of_the_counters(values: list[float]) -> None:
    running = Running(OPTIONS)
    running.process(gauge(values, {"pid": 7}))
    point = histogram(running)
    counts = np.array(point.positive.bucket_counts, np.int64)
    assert len(counts) <= 160
    assert counts.sum() == point.count == len(values)
    assert point.zero_count == 0
    upper = np.exp2(np.ldexp(np.arange(len(counts)) + point.positive.offset + 1.0, -point.scale))
    found = np.sort(np.repeat(upper, counts))
    width = 2.0 ** (2.0**-point.scale)
    rounded = np.sort(np.maximum(np.rint(np.array(values) * 1e9), 1)) / 1e9
    assert (rounded <= found * 1.001).all()
    assert (rounded >= found / width / 1.001).all()
    assert point.attributes[0].key == "pid"


def test_it_is_cumulative_whatever_the_window() -> None:
    running = Running(OPTIONS)
    running.process(gauge([1.0]))
    first = histogram(running)
    running.process(gauge([2.0, 0.0]))
    second = histogram(running)
    assert (first.count, second.count, second.zero_count) == (1, 3, 1)
    assert second.sum == pytest.approx(3)
    assert second.start_time_unix_nano == first.start_time_unix_nano
    assert second.zero_threshold == pytest.approx(0.5e-9)


def test_one_value_needs_one_bucket_as_fine_as_can_be() -> None:
    running = Running(OPTIONS)
    running.process(gauge([0.5, 0.5]))
    point = histogram(running)
    assert (list(point.positive.bucket_counts), point.scale) == ([2], 20)
