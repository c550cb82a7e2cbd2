"""The durations of steps: percentiles as `percentiles` computes them.

The time line in bounded memory.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.histograms.hdr import HdrLayout
from otel_zernel_libraries.training.state import StepBars, StepTimes, merged
from otel_zernel_libraries.training.state.step_bars import longest_segments
from otel_zernel_libraries.training.steps import BarSegment, StepBar
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
    percentile = times_of([one / 1e9 for one in durations_ns]).percentile(percent)
    assert percentile == pytest.approx(min(float(exact), max(durations_ns)) / 1e9, rel=1e-3)


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


MS = 1_000_000


def bar(number: int, lasts_ms: int = 10) -> StepBar:
    start = number * 100 * MS
    spent = (lasts_ms * MS, 0, 0, 0, 0)
    return StepBar(start, start + lasts_ms * MS, "training", number, spent)


@given(st.lists(st.integers(1, 90), max_size=300), st.integers(2, 20))
def test_a_long_run_stays_bounded_and_loses_no_time(durations: list[int], most: int) -> None:
    bars = StepBars(most)
    for number, lasts in enumerate(durations):
        bars.add(bar(number, lasts))
    assert len(bars.bars) <= most
    assert sum(bar.steps for bar in bars.bars) == len(durations)
    assert sum(bar.phase_ns[0] for bar in bars.bars) == sum(durations) * MS
    assert max((bar.longest_ns for bar in bars.bars), default=0) == max(durations, default=0) * MS
    assert all(one.end_ns <= other.start_ns for one, other in pairwise(bars.bars))


def test_merged_steps_keep_the_first_number_and_the_longest_duration() -> None:
    [one] = merged([bar(7, 10), bar(8, 50)], 2)
    assert (one.number, one.steps, one.longest_ns, one.start_ns, one.end_ns) == (7, 2, 50 * MS, 700 * MS, 850 * MS)
    assert one.segments == ()


def test_neighbouring_segments_of_one_detail_are_one() -> None:
    parts = [BarSegment("gpu_compute", "forward", 10, 20), BarSegment("gpu_compute", "forward", 20, 30)]
    assert longest_segments(parts) == (BarSegment("gpu_compute", "forward", 10, 30),)


def test_of_many_segments_the_longest_stay_in_order() -> None:
    parts = [BarSegment("unknown", str(number), 100 * number, 100 * number + 10 + number % 2) for number in range(30)]
    kept = longest_segments(parts, 5)
    assert len(kept) == 5
    assert all(one.start_ns < other.start_ns for one, other in pairwise(kept))
    assert all(one.end_ns - one.start_ns == 11 for one in kept)
