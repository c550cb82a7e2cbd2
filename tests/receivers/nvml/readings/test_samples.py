"""Sample buffers: every sample counts once, whatever happens to the buffer between two reads."""

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Histogram, HistogramDataPoint

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import HISTOGRAM_ATTRIBUTES, Period, encode_attributes
from otel_zernel.testing import make_context
from otel_zernel_processors.percentiles import PercentilesProcessor
from otel_zernel_processors.percentiles.config import PercentilesConfig
from otel_zernel_receivers.nvml.gpus.gpu import Gpu
from otel_zernel_receivers.nvml.points.histograms import SampleHistogram
from tests.receivers.nvml.driver import Driver
from tests.receivers.nvml.reading import metrics
from tests.receivers.nvml.running import Boot, Host

QUANTILES = (0.25, 0.5, 0.75, 0.9)
POWER, SPACING_US, CAPACITY = "zernel.gpu.power.distribution", 20_000, 16


def power_samples(batch: Batch) -> tuple[int, float]:
    """Number and sum of the power samples."""
    points = [point for metric in metrics(batch, POWER) for point in metric.histogram.data_points]
    return sum(point.count for point in points), sum(point.sum for point in points)


def point_of(encoded: bytes) -> HistogramDataPoint:
    """The point, which is encoded as a field of its histogram."""
    [point] = Histogram.FromString(encoded).data_points
    return point


def push(controls: Driver, first: int, count: int) -> None:
    """Adds `count` samples from number `first` on. The power of a sample in W is its number."""
    numbers = range(first, first + count)
    controls.apply("gpu 0", *(f"Samples 0 += {1_000_000 + number * SPACING_US} {number * 1000}" for number in numbers))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(reads=st.lists(st.integers(0, CAPACITY), min_size=1, max_size=12))
def test_every_sample_counts_once_while_the_ring_is_overwritten(driver: Boot, reads: list[int]) -> None:
    controls = driver("h200")
    controls.apply("gpu 0", f"SampleCapacity 0 = {CAPACITY}", "Samples 0 = 1000000 0")
    host, pushed, read, total = Host(), 1, 0, 0.0
    with host.gpus() as gpus:
        for new in [0, *reads]:
            if new:
                push(controls, pushed, new)
            pushed += new
            count, more = power_samples(gpus[0].scrape())
            read += count
            total += more
    assert read == pushed
    assert total == pytest.approx(sum(range(pushed)))
    assert not host.context.drop.counts  # type: ignore[attr-defined]  # a `Dropped` in tests


def test_overwritten_samples_are_counted_as_dropped(driver: Boot) -> None:
    controls = driver("h200")
    controls.apply("gpu 0", f"SampleCapacity 0 = {CAPACITY}", "Samples 0 = 1000000 0")
    push(controls, 1, CAPACITY)
    host = Host()
    with host.gpus() as gpus:
        gpus[0].scrape()
        push(controls, CAPACITY + 1, 40)
        assert power_samples(gpus[0].scrape())[0] == CAPACITY
    assert host.context.drop.counts == {"sample_buffer_overrun": 40 - CAPACITY}  # type: ignore[attr-defined]


def test_draining_between_scrapes_loses_nothing(driver: Boot) -> None:
    controls = driver("h200")
    controls.apply("gpu 0", f"SampleCapacity 0 = {CAPACITY}", "Samples 0 = 1000000 0")
    push(controls, 1, CAPACITY)
    with Host().gpus() as gpus:
        gpus[0].scrape()
        assert gpus[0].board.drain_interval == 0.5  # half of the 0.3 s in the ring is below the minimum
        for first in range(CAPACITY + 1, CAPACITY + 1 + 5 * CAPACITY, CAPACITY):
            push(controls, first, CAPACITY)
            gpus[0].board.drain()
        assert power_samples(gpus[0].scrape())[0] == 5 * CAPACITY


def reads_of_buffers(gpus: list[Gpu]) -> int:
    """How often NVML's buffers were read since the scrape before."""
    durations = metrics(gpus[0].scrape(), "zernel.nvml.query.duration")
    about = (point for metric in durations for point in metric.histogram.data_points)
    return next(one.count for one in about if one.attributes[-1].value.string_value == "nvmlDeviceGetSamples")


def test_a_drain_reads_only_the_buffers_that_are_soon_overwritten(driver: Boot) -> None:
    """On an H100, power is kept for 2.4 s and utilisation for 14 s, and each read costs 1 to 3 ms of CPU time."""
    controls, host = driver("h200"), Host()
    of_h100 = [f"Samples 0 += {1_000_000 + one * 20_000} 70000" for one in range(119)]
    of_h100 += [f"Samples 1 += {1_000_000 + one * 200_000} 0" for one in range(71)]
    controls.apply("gpu 0", "SampleCapacity 0 = 119", "SampleCapacity 1 = 71", *of_h100)
    with host.gpus() as gpus:
        gpus[0].scrape()
        assert gpus[0].board.drain_interval == pytest.approx(1.18)
        a_scrape = reads_of_buffers(gpus)
        for _ in range(7):
            host.clock.advance(1.18)
            gpus[0].board.drain()
        assert reads_of_buffers(gpus) == a_scrape + 7 + 1  # utilisation once


def test_no_sample_counts_twice_after_a_reload_of_the_driver(driver: Boot) -> None:
    controls, host = driver("h200"), Host()
    with host.gpus() as gpus:
        assert power_samples(gpus[0].scrape())[0] == 1
    push(controls, 1, 3)
    with host.gpus() as gpus:
        assert power_samples(gpus[0].scrape())[0] == 3


def test_a_delta_starts_where_the_last_one_ended(driver: Boot) -> None:
    controls, host = driver("h200"), Host()
    with host.gpus() as gpus:
        first = metrics(gpus[0].scrape(), POWER)[0].histogram
        host.clock.advance(10)
        push(controls, 1, 1)
        second = metrics(gpus[0].scrape(), POWER)[0].histogram
    assert first.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    assert first.data_points[0].time_unix_nano == second.data_points[0].start_time_unix_nano


def test_the_percentiles_are_the_same_as_of_all_samples(driver: Boot) -> None:
    watts = [70.123, 123.456, 350.5, 351.0, 698.21, 699.999, 700.0, 701.7]
    controls = driver("h200")
    controls.apply("gpu 0", *(f"Samples 0 += {1_100_000 + at} {w * 1000:.0f}" for at, w in enumerate(watts)))
    with Host().gpus() as gpus:
        batch = gpus[0].scrape()
    config = PercentilesConfig(metrics=(POWER,), outputs=("summary",), suffix="", quantiles=QUANTILES)
    processor = PercentilesProcessor(config, make_context("processors"))
    list(processor.process(batch))
    (summary,) = [metric for out in processor.flush() for metric in metrics(out, POWER)]
    point = summary.summary.data_points[0]
    every_sample = HdrHistogram(1, 2**40, 3)
    for watt in (125.31, *watts):
        every_sample.record_value(round(watt * 1e6))
    found = [quantile_value.value for quantile_value in point.quantile_values if quantile_value.quantile in QUANTILES]
    assert found == [every_sample.get_value_at_percentile(100 * quantile) / 1e6 for quantile in QUANTILES]
    assert point.count == 9
    assert point.sum == pytest.approx(125.31 + sum(watts))


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=300))
def test_a_distribution_has_count_sum_and_extremes_of_its_values(values: list[int]) -> None:
    counted = SampleHistogram(lambda number: number / 1000, 1000.0)
    counted.add(values)
    point = point_of(counted.flush(encode_attributes({"hw.id": "x"}, HISTOGRAM_ATTRIBUTES), Period(1, 2)))
    assert point.count == sum(point.bucket_counts) == len(values)
    assert point.sum == pytest.approx(sum(values) / 1000)
    assert (point.min, point.max) == (min(values) / 1000, max(values) / 1000)
    assert list(point.explicit_bounds) == sorted(set(point.explicit_bounds))
    assert (point.start_time_unix_nano, point.time_unix_nano) == (1, 2)
    assert not counted


def test_bounds_stay_while_no_new_values_are_counted() -> None:
    counted = SampleHistogram(float, 1e6)
    bounds = []
    for values in ([0.1, 0.5, 1.0], [0.5], [1.0, 0.1]):
        counted.add(values)
        bounds.append(list(point_of(counted.flush(b"", Period(0, 1))).explicit_bounds))
    assert bounds[0] == bounds[1] == bounds[2]


def test_no_sample_is_lost_when_the_host_clock_is_set_back(driver: Boot) -> None:
    controls, host = driver("h200"), Host()
    ahead = host.clock.time_ns() // 1000 + 3600 * 10**6
    with host.gpus() as gpus:
        controls.apply("gpu 0", f"Samples 0 += {ahead} 100000")
        gpus[0].scrape()
        controls.apply("gpu 0", "Samples 0 -", f"Samples 0 += {host.clock.time_ns() // 1000 + 1} 200000")
        assert power_samples(gpus[0].scrape()) == (1, 200)
