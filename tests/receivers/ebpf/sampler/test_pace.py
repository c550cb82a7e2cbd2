"""The clock is faster while it learns how the gaps of a new loop are divided."""

import pytest

from otel_zernel_receivers.ebpf.sampler.pace import SOON_S, Pace
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess

JOB, OTHER = WatchedProcess(0, 1, 100), WatchedProcess(1, 1, 101)


@pytest.mark.parametrize(("usual", "fast"), [(0, 0), (19, 190), (49, 199), (499, 499)])
def test_the_clock_is_faster_at_first_for_each_process_that_computes_between_its_steps(usual: int, fast: int) -> None:
    pace = Pace(usual)
    assert pace.ticks([], 0) == usual
    assert [pace.ticks([JOB], now) for now in (5, 4 + SOON_S)] == [fast, fast]
    assert [pace.ticks([JOB], now) for now in (5 + SOON_S, 1_000)] == [usual, usual]
    assert [pace.ticks([JOB, OTHER], now) for now in (1_001, 1_001 + SOON_S)] == [fast, usual]


def test_a_process_that_has_ended_needs_no_faster_clock() -> None:
    pace = Pace(19)
    assert pace.ticks([JOB], 0) == 190
    pace.forget(JOB)
    assert pace.ticks([], 1) == 19
    assert pace.ticks([JOB], 2) == 190
