"""The window of one process, from which verdicts are made."""

from collections.abc import Sequence

import pytest

from otel_zernel_processors.phases.results.totals import Totals
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
