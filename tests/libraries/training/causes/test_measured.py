"""The compact form of steps."""

from collections import Counter

import numpy as np
import pytest

from otel_zernel_libraries.training.causes import MeasuredSteps
from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Position, Segment, StepEvent

LOAD = MOMENTS[Position.LOAD][Activity.FILE]
PASS = MOMENTS[Position.FORWARD][Activity.OPERATOR]
SECOND = 1_000_000_000
BATCH = StepEvent("batch")


def measured(steps: int, window: int = 1_000 * SECOND) -> MeasuredSteps:
    """Steps of a second: a quarter of it loads."""
    kept = MeasuredSteps(window)
    for number in range(steps):
        begin, middle, end = number * SECOND, number * SECOND + SECOND // 4, (number + 1) * SECOND
        segments = [Segment(begin, middle, LOAD), Segment(middle, end, PASS)]
        kept.add((begin, end), segments, Counter({BATCH: 2}) if number % 2 else Counter(), 1, number)
    return kept


def test_a_grid_has_the_time_of_each_moment_between_the_times() -> None:
    grid = measured(4).grid(np.array([SECOND, 2 * SECOND, 4 * SECOND]))
    seconds = dict(zip(grid.moments, grid.spent.T.tolist(), strict=True))
    assert seconds == {LOAD: pytest.approx([0.25, 0.5]), PASS: pytest.approx([0.75, 1.5])}


def test_a_segment_across_a_time_is_divided() -> None:
    grid = measured(2).grid(np.array([0, SECOND // 2, 2 * SECOND]))
    assert grid.spent[:, grid.moments.index(PASS)] == pytest.approx([0.25, 1.25])


def test_an_event_counts_from_the_first_step_on_that_has_it() -> None:
    assert measured(4).counts()[BATCH].tolist() == [0, 2, 0, 2]


def test_steps_before_the_window_and_beyond_the_bound_are_forgotten_with_their_time() -> None:
    kept = measured(1_000, window=100 * SECOND)
    first = int(kept.steps[0, 0])
    assert 100 <= len(kept) <= 126
    grid = kept.grid(np.array([0, first, 1_000 * SECOND]))
    assert grid.spent[0].sum() == 0
    assert grid.spent[1].sum() == pytest.approx(len(kept))
    assert len(measured(9_000, window=10_000 * SECOND)) <= 4_096


def test_a_time_that_no_sum_can_hold_is_ignored() -> None:
    kept = MeasuredSteps(SECOND)
    kept.add((0, 2**63), [], {}, 1, 1)
    assert len(kept) == 0
