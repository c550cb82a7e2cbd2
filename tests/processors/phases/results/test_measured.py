"""The causes of a process, from its spans to the state of a reader."""

import asyncio
import random
from collections.abc import Callable, Iterable

import pytest
from opentelemetry.metrics import NoOpMeter
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel.engine.pipelines.pipeline import Stage
from otel_zernel.engine.unbroken import Unbroken
from otel_zernel.otlp.points import AttributeValue
from otel_zernel.telemetry import Instruments
from otel_zernel.testing import Dropped
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import Cause, CauseName, StepFlags
from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Position, Segment
from otel_zernel_processors.phases.intake.inputs import InputPoint
from otel_zernel_processors.phases.results.device import DeviceTimes
from otel_zernel_processors.phases.results.measured import MeasuredProcess, answer_over_ranks
from tests.processors.phases.processing import answer_in, in_pieces, make, run
from tests.processors.phases.results.test_device import STEP, spans_of_thread, trained
from tests.processors.phases.training import START, batch_of, gauge_batch, resource_of


def test_a_reader_sees_the_causes_of_a_process_with_their_gains() -> None:
    """Each step reads a file for 8 ms and sleeps for 20 of its 40 ms."""
    answer = answer_in(run(batch_of(spans_of_thread(trained(launches=0, sync="")))))
    assert answer.step == pytest.approx(STEP, rel=0.02)
    gains = {(cause.cause, cause.position, cause.activity): cause.gain for cause in answer.causes}
    assert gains[CauseName.SEGMENT, Position.LOAD, Activity.FILE] == pytest.approx(0.008, rel=0.05)
    assert sum(gain for (_, _, activity), gain in gains.items() if activity is Activity.TIMER) == pytest.approx(
        0.02, rel=0.05
    )


def readings(name: str, values: Iterable[float], **attributes: AttributeValue) -> Batch:
    """A gauge of GPU 0, a reading each second. Later spans are late."""
    return gauge_batch(
        name, ((1000 * second, value) for second, value in enumerate(values)), zernel_gpu_index=0, **attributes
    )


def causes_on_gpu(*of_driver: Batch) -> list[Cause]:
    """The causes of a process whose GPU works but for 8 ms of each step, with the readings of its driver."""
    spans = in_pieces(spans_of_thread(trained()), size=500, zernel_local_rank=0)
    answer = answer_in(run(*of_driver, *spans))
    assert answer.device
    assert answer.device.busy > 0.49 * STEP
    assert answer.device.starved[Position.LOAD] == pytest.approx(0.008, rel=0.1)
    return list(answer.causes)


def test_a_gpu_that_heat_slows_down_is_a_cause() -> None:
    clocks = [
        readings(semconv.GPU_CLOCK_LIMIT, [2e9] * 2, zernel_gpu_clock_domain="sm"),
        readings(semconv.GPU_CLOCK, [1.2e9] * 2, zernel_gpu_clock_domain="sm"),
        readings(semconv.GPU_CLOCK, [1e9] * 2, zernel_gpu_clock_domain="memory"),
    ]
    heat = readings(semconv.GPU_THROTTLE_ACTIVE, [1.0] * 2, zernel_gpu_throttle_reason="hw_thermal_slowdown")
    power = readings(semconv.GPU_THROTTLE_ACTIVE, [1.0] * 2, zernel_gpu_throttle_reason="sw_power_cap")
    (cause,) = (cause for cause in causes_on_gpu(*clocks, heat, power) if cause.cause is CauseName.DEVICE_CLOCKS)
    assert cause.gain == pytest.approx(0.4 * (STEP - 0.008), rel=0.02)
    assert cause.gain_low == 0
    assert [fact.value for fact in cause.evidence] == [1.0, pytest.approx(0.6)]
    assert CauseName.DEVICE_CLOCKS not in {cause.cause for cause in causes_on_gpu(*clocks, power)}


def test_another_program_on_the_gpu_is_a_cause_and_a_process_of_the_job_is_none() -> None:
    def using(pid: int, parent: int) -> Batch:
        used = readings(semconv.GPU_PROCESS_UTILIZATION, [0.4] * 2, process_pid=pid, zernel_gpu_engine="sm")
        used.edit_metrics().resource_metrics[0].resource.MergeFrom(resource_of(pid, process_parent_pid=parent))
        return used

    general = readings("hw.gpu.utilization", [0.9] * 2)
    (cause,) = (
        cause for cause in causes_on_gpu(general, using(77, parent=1)) if cause.cause is CauseName.DEVICE_SHARED
    )
    assert cause.evidence[0].text == "Process 77 uses it for 40 % of the time."
    worker = using(78, parent=42)
    assert CauseName.DEVICE_SHARED not in {cause.cause for cause in causes_on_gpu(general, worker)}


def growth_of(memory_at: Callable[[int], float], seconds: int = 300) -> float | None:
    """The growth of a process whose memory is read each second."""
    measured = MeasuredProcess(3_600 * 10**9, DeviceTimes(), Dropped())
    for second in range(seconds):
        time = START + second * 10**9
        name = semconv.PROCESS_MEMORY_ANONYMOUS
        measured.add_point(InputPoint(name, 0, time, memory_at(second), "", 7, "", False, Resource()))
    return measured.facts.memory_growth


def test_a_rank_knows_how_many_of_its_launcher_are_beside_it() -> None:
    processor = make(interval="1s")
    for pid, parent, rank in ((1, 9, 0), (2, 9, 1), (3, 9, 2), (4, 8, 0)):
        batch = gauge_batch("zernel.process.io.wait", [(0, 0.0), (900, 0.1)], process_pid=pid)
        of_rank = {"process_parent_pid": parent, "zernel_rank": rank, "zernel_world_size": 3}
        batch.edit_metrics().resource_metrics[0].resource.MergeFrom(resource_of(pid, **of_rank))  # type: ignore[arg-type]
        list(processor.process(batch))
    list(processor.process(gauge_batch("hw.power", [(9000, 1.0)])))
    (host,) = processor._hosts.by_name.values()
    beside = {process.identity.pid: process.measured.facts.ranks_here for process in host.reported}
    assert beside == {1: 3, 2: 3, 3: 3, 4: 1}


def test_ranks_that_leave_a_collective_at_different_times_are_explained() -> None:
    """Steps of 2 ms on busy CPUs: each rank goes on when it has got one. The clock of rank 1 is 20 ms ahead."""
    drawn, clocks = random.Random(0), (0, 20_000_000)
    ranks = {rank: MeasuredProcess(60 * 10**9, DeviceTimes(), Dropped()) for rank in (0, 1)}
    left, meetings = [10**18, 10**18], []
    for number in range(1, 401):
        arrived = [time + round(1.4e6 * drawn.uniform(0.9, 1.1)) for time in left]
        over = max(arrived) + 200_000
        before, left = left, [over + round(drawn.expovariate(1 / 0.4e6)) for _ in ranks]
        for rank, one in ranks.items():
            times = [time + clocks[rank] for time in (before[rank], arrived[rank], left[rank])]
            waits = Segment(times[1], times[2], MOMENTS[Position.BACKWARD][Activity.COLLECTIVE])
            works = Segment(times[0], times[1], MOMENTS[Position.FORWARD][Activity.OPERATOR])
            one.steps.add((times[0], times[2]), [works, waits], {}, StepFlags.TRAINED, number, times[2])
        meetings.append({rank: left[rank] + clocks[rank] for rank in ranks})
    answer = answer_over_ranks(ranks, meetings, 2, 0, None)
    assert answer
    assert answer.unknown is None
    assert answer.step == pytest.approx((left[0] - 10**18) / 400 / 1e9, rel=0.02)


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
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    batch = batch_of(spans_of_thread(trained(launches=0, sync="")))
    counting = asyncio.create_task(count())
    outputs = await stage.process(batch, Unbroken())
    before = turns
    assert answer_in([*outputs, *await stage.flush(Unbroken())])
    assert turns > before > 0
    counting.cancel()
