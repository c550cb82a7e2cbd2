"""The causes of a process, from its spans to the state of a reader."""

import pytest

from otel_zernel_libraries.training.causes import CauseName
from otel_zernel_libraries.training.ledger import Activity, Position
from otel_zernel_libraries.training.state import TrainingState
from tests.processors.phases.processing import run
from tests.processors.phases.results.test_device import STEP, spans_of_thread, trained
from tests.processors.phases.training import batch_of


def test_a_reader_sees_the_causes_of_a_process_with_their_gains() -> None:
    """Each step reads a file for 8 ms and sleeps for 20 of its 40 ms."""
    state = TrainingState()
    for batch in run(batch_of(spans_of_thread(trained(launches=0, sync="")))):
        state.add(batch, 0.0)
    (process,) = state.processes
    assert process.answer
    assert process.answer.step == pytest.approx(STEP, rel=0.02)
    gains = {(one.cause, one.position, one.activity): one.gain for one in process.answer.causes}
    assert gains[CauseName.SEGMENT, Position.LOAD, Activity.FILE] == pytest.approx(0.008, rel=0.05)
    assert sum(gain for (_, _, activity), gain in gains.items() if activity is Activity.TIMER) == pytest.approx(
        0.02, rel=0.05
    )
