"""The comparison of ranks: lateness, transfer and the step that they are shares of."""

from collections import Counter

import pytest

from otel_zernel_processors.phases.results.ranks import compare
from otel_zernel_processors.phases.results.totals import PhaseTotals

MS = 1_000_000


def window(wait: float, *, evaluation: float = 0.0, evaluation_wait: float = 0.0) -> PhaseTotals:
    """100 training steps of 40 ms besides the wait (ms). The evaluations between them take `evaluation` (ms) a step."""
    phases = {"gpu_compute": 40 + evaluation - evaluation_wait, "nccl_collective": wait + evaluation_wait}
    return PhaseTotals(
        phase_ns=Counter({phase: round(100 * ms * MS) for phase, ms in phases.items()}),
        steps=Counter({"training": 100, "evaluation": 50}),
        duration_ns=round(100 * (40 + wait) * MS),
    )


def test_the_step_has_the_evaluations_whose_waits_count() -> None:
    """48 ms of each 64 ms are training, and 2 of the 16 ms of evaluation are a wait."""
    of_rank = window(8, evaluation=16, evaluation_wait=2)
    times = compare({0: of_rank, 1: of_rank})
    assert times
    assert (times.step, times.transfer) == pytest.approx((0.064, 0.010))


def test_the_rank_that_waits_least_is_late() -> None:
    times = compare({0: window(10), 1: window(2), 2: window(9)})
    assert times
    assert times.lateness == pytest.approx({0: 0.0, 1: 0.008, 2: 0.001})
    assert times.transfer == pytest.approx(0.002)


def test_one_rank_or_ranks_with_steps_of_no_length_are_not_compared() -> None:
    instant = PhaseTotals(steps=Counter({"training": 5}))
    assert compare({0: window(10)}) is None
    assert compare({0: instant, 1: instant}) is None
