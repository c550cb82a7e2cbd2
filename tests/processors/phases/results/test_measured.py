"""The causes of a process, from its spans to the state of a reader."""

import asyncio
from collections.abc import Callable

import pytest
from opentelemetry.metrics import NoOpMeter
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.engine.pipelines.pipeline import Stage
from otel_zernel.engine.unbroken import Unbroken
from otel_zernel.telemetry import Instruments
from otel_zernel.testing import Dropped
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import CauseName
from otel_zernel_libraries.training.ledger import Activity, Position
from otel_zernel_libraries.training.state import TrainingState
from otel_zernel_processors.phases.intake.inputs import InputPoint
from otel_zernel_processors.phases.results.device import DeviceTimes
from otel_zernel_processors.phases.results.measured import MeasuredProcess
from tests.processors.phases.processing import make, run
from tests.processors.phases.results.test_device import STEP, spans_of_thread, trained
from tests.processors.phases.training import START, batch_of


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


def growth_of(memory_at: Callable[[int], float], seconds: int = 300) -> float | None:
    """The growth of a process whose memory is read each second."""
    measured = MeasuredProcess(3_600 * 10**9, DeviceTimes(), Dropped())
    for second in range(seconds):
        time = START + second * 10**9
        name = semconv.PROCESS_MEMORY_ANONYMOUS
        measured.add_point(InputPoint(name, 0, time, memory_at(second), "", 7, "", False, Resource()))
    return measured.facts.memory_growth


def test_memory_that_rises_all_the_time_grows() -> None:
    assert growth_of(lambda second: 1e9 + 1e6 * second + 3e5 * (second % 3)) == pytest.approx(1e6, rel=0.05)


@pytest.mark.parametrize(
    "memory_at",
    [
        lambda second: 1e9,
        lambda second: 1e9 + 1e6 * (second % 100),
        lambda second: 1e9 + 1e6 * min(second, 100),
        lambda second: 1e9 + (1e8 if second > 150 else 0.0),
        lambda second: 1e9 - 1e6 * second,
        lambda second: 1e9 + 2e5 * second,
    ],
    ids=["level", "freed", "filled", "once", "falling", "a heap that fills"],
)
def test_memory_that_does_not_rise_all_the_time_does_not_grow(memory_at: Callable[[int], float]) -> None:
    assert growth_of(memory_at) == 0.0


def test_the_growth_of_memory_that_was_read_a_few_times_is_not_known() -> None:
    assert growth_of(lambda second: 1e6 * second, 5) is None


async def test_the_event_loop_goes_on_while_causes_are_computed() -> None:
    stage = Stage(make(), Instruments(NoOpMeter("test")).processor("phases", "p"))
    state, turns = TrainingState(), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    batch = batch_of(spans_of_thread(trained(launches=0, sync="")))
    counting = asyncio.create_task(count())
    outputs = await stage.process(batch, Unbroken())
    before = turns
    for output in (*outputs, *await stage.flush(Unbroken())):
        state.add(output, 0.0)
    assert turns > before > 0
    counting.cancel()
    (process,) = state.processes
    assert process.answer
