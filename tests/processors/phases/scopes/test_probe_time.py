"""The time of the receiver's probes is no time of the program, so a job with short steps has no cause for it."""

from collections import Counter

import pytest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel_libraries.training.causes import CauseName
from otel_zernel_libraries.training.ledger import Activity, Position
from otel_zernel_processors.phases.intake.inputs import PROBE_HITS, PROBE_TIME, InputPoint
from otel_zernel_processors.phases.results.device import DeviceTimes
from otel_zernel_processors.phases.results.measured import MeasuredProcess
from otel_zernel_processors.phases.scopes.counters import ProbeTime
from otel_zernel_processors.phases.scopes.timeline import ClosedStep, Timeline
from tests.libraries.training.ledger.made_snapshots import NOTHING
from tests.processors.phases.scopes.counted_thread import CountedThread, ledger_of
from tests.processors.phases.training import MS, START

STEPS = 60
SECOND = 1_000_000_000
OF_HIT = 5e-6


def point(name: str, number: int, value: float, *, is_delta: bool = True) -> InputPoint:
    """A point of the reading with this number, one a second."""
    start = START + number * SECOND
    return InputPoint(name, start, start + SECOND, value, "node", 42, "", is_delta, Resource())


def short_steps(*points: InputPoint) -> list[ClosedStep]:
    """Steps of 0.5 ms. The optimizer takes 0.2 ms, of which 0.17 ms are 34 hits of probes."""
    # it is sampled elsewhere, so the time after an operator is Python
    thread = CountedThread(NOTHING._replace(samples=(0, 1, 0, 0), last_operator=1))
    for _ in range(STEPS):
        thread.scope("forward", 0.12, count=8, hits=4)
        thread.scope("backward", 0.14, hits=4)
        begin = thread.snapshot
        thread.spend(0.2, operators=2, hits=34)
        thread.add("optimizer", begin, name="Optimizer.step#SGD.step")
        thread.scope("zero_grad", 0.04, hits=2)
    timeline = Timeline(MS // 2, 10_000)
    for point in points:
        timeline.add_time(point)
    for interval in thread.intervals:
        timeline.add(interval)
    return list(timeline.end())


READING = (point(PROBE_HITS, 0, 20_000), point(PROBE_TIME, 0, 20_000 * OF_HIT))


def test_the_time_of_each_position_is_that_without_its_probes() -> None:
    spent = ledger_of(short_steps(*READING))
    assert spent[Position.OPTIMIZER, Activity.PROBE] == pytest.approx(34 * OF_HIT * 1e3 * STEPS, rel=0.01)
    own: Counter[Position] = Counter()
    for (position, activity), lasted in spent.items():
        own[position] += lasted if activity is not Activity.PROBE else 0  # type: ignore[assignment]  # a float
    assert own[Position.BACKWARD] == pytest.approx((0.14 - 4 * OF_HIT * 1e3) * STEPS, rel=0.02)
    assert own[Position.OPTIMIZER] == pytest.approx((0.2 - 34 * OF_HIT * 1e3) * STEPS, rel=0.02)
    assert sum(spent.values()) == pytest.approx(sum(ledger_of(short_steps()).values()))


@pytest.mark.parametrize("points", [(), READING], ids=["unknown", "known"])
def test_a_healthy_job_with_short_steps_has_no_cause_if_the_time_of_its_probes_is_known(
    points: tuple[InputPoint, ...],
) -> None:
    measured = MeasuredProcess(60 * SECOND, DeviceTimes(), lambda _, __: None)
    for number, closed in enumerate(short_steps(*points)):
        measured.add(closed, number, 0)
    answer = measured.answer(1, None, 0, None)
    assert answer
    if points:
        assert answer.causes == ()
    else:
        assert [(cause.cause, cause.position) for cause in answer.causes] == [(CauseName.SEGMENT, Position.OPTIMIZER)]


@pytest.mark.parametrize("is_delta", [True, False], ids=["delta", "cumulative"])
def test_the_time_of_a_hit_follows_the_latest_readings(is_delta: bool) -> None:
    latest, hits, seconds = ProbeTime(), 0.0, 0.0
    assert latest.of_hit == 0
    for number in range(600):
        spent = 0.001 if number < 300 else 0.004
        hits, seconds = (1_000, spent) if is_delta else (hits + 1_000, seconds + spent)
        latest.add(point(PROBE_HITS, number, hits, is_delta=is_delta))
        latest.add(point(PROBE_TIME, number, seconds, is_delta=is_delta))
    assert latest.of_hit == pytest.approx(4_000, rel=0.01)
