"""The durations of steps: percentiles as `percentiles` computes them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.histograms.hdr import HdrLayout
from otel_zernel_libraries.training.state import StepTimes
from tests.commands.why.recorded_runs import processed
from tests.processors.phases.training import metrics_of

LAYOUT = HdrLayout(significant_figures=3)


def times_of(durations_s: list[float]) -> StepTimes:
    times = StepTimes()
    for duration in durations_s:
        times.add(duration)
    return times


@given(st.lists(st.integers(1, 10**11), min_size=1, max_size=200), st.sampled_from([0.1, 50.0, 90.0, 99.0]))
def test_percentiles_are_those_of_an_hdr_histogram(durations_ns: list[int], percent: float) -> None:
    exact = LAYOUT.percentiles(LAYOUT.count(np.array(durations_ns)), percent)
    found = times_of([one / 1e9 for one in durations_ns]).percentile(percent)
    assert found == pytest.approx(min(float(exact), max(durations_ns)) / 1e9, rel=1e-3)


def test_points_of_phases_are_read_without_loss() -> None:
    times, count, total = StepTimes(), 0, 0.0
    for metric in metrics_of(processed("stalls of 150 ms"), "zernel.step.duration"):
        for point in metric.histogram.data_points:
            times.add_point(point)
            count, total = count + point.count, total + point.sum
    assert count > 0
    assert times.count == count
    assert times.mean == pytest.approx(total / count)
    middle, counts = times.values()
    assert float(middle @ counts) == pytest.approx(total, rel=1e-3)


def test_jitter_is_the_deviation_as_a_share_of_the_mean() -> None:
    assert times_of([0.1, 0.3]).jitter == pytest.approx(0.5, rel=1e-3)
    assert times_of([0.1, 0.1]).jitter == 0
    assert times_of([0.1]).jitter == 0


def test_without_steps_everything_is_0() -> None:
    nothing = StepTimes()
    assert (nothing.count, nothing.mean, nothing.longest, nothing.jitter, nothing.percentile(99)) == (0, 0, 0, 0, 0)


def test_durations_of_several_ranks_add_up() -> None:
    joined = StepTimes.joined([times_of([0.1, 0.2]), times_of([0.4])])
    assert (joined.count, joined.longest) == (3, 0.4)
    assert joined.mean == pytest.approx(0.7 / 3)
