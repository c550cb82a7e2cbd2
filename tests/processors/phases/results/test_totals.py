"""The window of one process, from which verdicts are made, and the comparison of the windows of ranks."""

from collections import Counter
from collections.abc import Sequence

import pytest

from otel_zernel_processors.phases.results.totals import PhaseTotals, Totals, compare
from otel_zernel_processors.phases.scopes.steps import Step
from otel_zernel_processors.phases.scopes.timeline import ClosedStep

MS = 1_000_000


def training_step(start: int, end: int) -> ClosedStep:
    """A step between two times (ms)."""
    return ClosedStep(Step(start * MS, end * MS, "training", trains=True), [], [], 0)


@pytest.mark.parametrize(("start", "uncounted"), [(0, 0), (60, 10)])
def test_a_step_that_signals_have_counted_is_a_step_but_decides_no_verdict(start: int, uncounted: int) -> None:
    """Signals have counted the time until 100 ms. The step ends before, or has a part before. The window has neither
    the step nor its time."""
    totals = Totals(window_intervals=5)
    totals.add_period(0, 100 * MS, "gpu_compute")
    totals.add_step(training_step(start, start + 50))
    window = totals.close_interval()
    assert totals.steps.total() == 1
    assert window.trained == 0
    assert window.duration_ns == window.phase_ns.total() == 0
    assert totals.phase_ns.total() == (100 + uncounted) * MS
    assert sum(totals.ledger_ns.values()) == uncounted * MS
    totals.add_step(training_step(110, 150))
    window = totals.close_interval()
    assert window.trained == 1
    assert window.phase_ns.total() == window.duration_ns == 40 * MS


def windows(totals: Totals, steps: Sequence[Sequence[int]]) -> list[int]:
    """The training steps in the window at the end of each interval of 10 s, which has these steps (s)."""
    found, at = [], 0
    for of_interval in steps:
        for lasts in of_interval:
            totals.add_step(training_step(at, at + 1000 * lasts))
            at += 1000 * lasts
        found.append(totals.close_interval().trained)
    return found


def test_a_window_with_too_few_steps_for_a_verdict_begins_earlier() -> None:
    """Steps of 25 s, and intervals of 10 s without an end of a step."""
    steps = [[], [], [25], [], [25], [], [], [25], [], [25], [], [], [25]]
    assert windows(Totals(window_intervals=3), steps) == [0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3]


def test_a_window_without_a_step_has_none() -> None:
    assert windows(Totals(window_intervals=2), [[3, 3], [3], [3], [], []]) == [2, 3, 4, 4, 0]


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


def test_one_rank_or_ranks_with_steps_of_no_length_are_not_compared() -> None:
    instant = PhaseTotals(steps=Counter({"training": 5}))
    assert compare({0: window(10)}) is None
    assert compare({0: instant, 1: instant}) is None
