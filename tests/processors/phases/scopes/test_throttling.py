"""The waits of a thread for a CPU are divided by the counters of its control group."""

import pytest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_processors.phases.intake.inputs import CPU_TAKEN_TIME, THROTTLED_TIME, InputPoint
from otel_zernel_processors.phases.scopes.timeline import Timeline
from tests.processors.phases.scopes.counted_thread import CountedThread, ledger_of
from tests.processors.phases.training import MS, START

SECOND = 1_000_000_000


def point(name: str, number: int, seconds: float) -> InputPoint:
    """A point of the reading with this number, one a second."""
    start = START + number * SECOND
    return InputPoint(name, start, start + SECOND, seconds, "node", 42, "", True, Resource())


def waits_of(*points: InputPoint) -> dict[Activity, float]:
    """The waits (ms) of a loop that waits 60 of each 100 ms for a CPU, for two seconds."""
    thread = CountedThread()
    for _ in range(20):
        thread.scope("data_loading", 20)
        thread.scope("backward", 20, {"cpu_wait": 60})
    timeline = Timeline(MS // 2, 10_000)
    for interval in thread.intervals:
        timeline.add(interval)
    for point in points:
        timeline.add_time(point)
    spent: dict[Activity, float] = {}
    for (_, activity), lasted in ledger_of(list(timeline.end())).items():
        spent[activity] = spent.get(activity, 0) + lasted
    return {one: lasted for one, lasted in spent.items() if one in (Activity.CPU_WAIT, Activity.THROTTLED)}


def test_without_a_quota_all_waits_are_for_other_threads() -> None:
    waits = waits_of(point(CPU_TAKEN_TIME, 0, 0.6), point(THROTTLED_TIME, 0, 0.0))
    assert waits == {Activity.CPU_WAIT: pytest.approx(1200)}


def test_if_nobody_takes_the_cpu_all_waits_are_by_the_quota() -> None:
    waits = waits_of(*(point(THROTTLED_TIME, number, 0.59) for number in (0, 1)))
    assert waits == {Activity.THROTTLED: pytest.approx(1200)}


def test_waits_are_divided_by_the_quota_and_the_takers() -> None:
    """In the first second one thread and two processes take the CPU; in the next one the quota stops the group."""
    takers = (point(CPU_TAKEN_TIME, 0, seconds) for seconds in (0.1, 0.3, 0.2))
    waits = waits_of(*takers, point(THROTTLED_TIME, 0, 0.15), point(THROTTLED_TIME, 1, 0.6))
    assert waits[Activity.THROTTLED] == pytest.approx(600 / 4 + 600, rel=0.01)
    assert sum(waits.values()) == pytest.approx(1200)


def test_a_cumulative_counter_counts_by_its_increases() -> None:
    first = point(THROTTLED_TIME, 0, 5.0)._replace(start=0, delta=False)
    second = point(THROTTLED_TIME, 1, 5.6)._replace(start=0, delta=False)
    assert waits_of(first, second) == {
        Activity.CPU_WAIT: pytest.approx(600, rel=0.01),
        Activity.THROTTLED: pytest.approx(600, rel=0.01),
    }
