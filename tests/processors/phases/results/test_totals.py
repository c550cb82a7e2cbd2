"""The window of one process, from which verdicts are made."""

import pytest

from otel_zernel_processors.phases.results.totals import Totals
from otel_zernel_processors.phases.scopes.steps import Step
from otel_zernel_processors.phases.scopes.timeline import ClosedStep

MS = 1_000_000


def training_step(start: int, end: int) -> ClosedStep:
    """A step between two times (ms)."""
    return ClosedStep(Step(start * MS, end * MS, "training", trains=True), [], [], 0)


@pytest.mark.parametrize("start", [0, 60])
def test_a_step_that_signals_have_counted_is_a_step_but_decides_no_verdict(start: int) -> None:
    """Signals have counted the time until 100 ms. The step ends before, or has a part before."""
    totals = Totals(window_intervals=5)
    totals.add_period(0, 100 * MS, "gpu_compute")
    totals.add_step(training_step(start, start + 50))
    window = totals.close_interval()
    assert totals.steps.total() == 1
    assert window.trained == 0
    assert window.duration_ns == 0
    totals.add_step(training_step(110, 150))
    window = totals.close_interval()
    assert window.trained == 1
    assert window.phase_ns.total() >= window.duration_ns == 40 * MS
