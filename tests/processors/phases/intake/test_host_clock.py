"""Clocks of hosts that differ from the collector's clock, jump or stop."""

import pytest

from otel_zernel.batch import Batch
from otel_zernel.testing import FakeClock
from otel_zernel_processors.phases import PhasesProcessor
from tests.processors.phases.processing import dropped, feed, last, make, make_at
from tests.processors.phases.training import (
    MS,
    START,
    Loop,
    attributes_of,
    batch_of,
    gauge_batch,
    metrics_of,
)


def test_timestamps_in_the_future_make_no_other_data_late() -> None:
    processor = make()
    right, wrong = Loop().steps(10).load(), Loop(now=367 * 86_400_000).steps(1)
    made = feed(processor, [batch_of(right.spans[:8]), batch_of(wrong.spans), batch_of(right.spans[8:])])
    assert dropped(processor) == {"invalid": 4}
    assert last(made, "zernel.steps", zernel_step_kind="training") == 10


def live_clock(**settings: object) -> tuple[PhasesProcessor, FakeClock]:
    """A processor whose clock shows the time of the spans."""
    clock = FakeClock(START)
    return make_at(clock, **settings), clock


@pytest.mark.parametrize("ahead", [0, 600_000])
@pytest.mark.parametrize("silence", [0, 400_000])
def test_timestamps_minutes_ahead_of_the_collectors_clock_make_no_other_data_late(ahead: int, silence: int) -> None:
    processor, clock = live_clock()
    right, wrong = Loop(now=ahead + silence).steps(10).load(), Loop(now=ahead + silence + 120_000).steps(1)
    rogue = gauge_batch("hw.power", [(ahead + silence + 90_000, 100.0)], zernel_gpu_index=0)
    list(processor.process(gauge_batch("hw.power", [(ahead, 100.0)], zernel_gpu_index=0)))
    clock.advance(silence / 1000)
    made = feed(processor, [batch_of(right.spans[:8]), rogue, batch_of(wrong.spans), batch_of(right.spans[8:])])
    assert dropped(processor) == {"invalid": 5}
    assert last(made, "zernel.steps", zernel_step_kind="training") == 10


def test_a_clock_that_was_set_ahead_is_accepted_after_the_idle_timeout() -> None:
    processor, clock = live_clock(idle_timeout="10s")
    for at in range(1, 31):
        clock.advance(1.0)
        power = gauge_batch("hw.power", [(at * 1000 + (3_600_000 if at > 5 else 0), 100.0)], zernel_gpu_index=0)
        list(processor.process(power))
    assert dropped(processor) == {"invalid": 11}


def test_a_recording_may_pause_for_any_time() -> None:
    for processor in (make(), live_clock()[0]):
        loops = Loop(now=86_400_000 * 2).steps(10), Loop(now=86_400_000 * 2 + 7_200_000).steps(10)
        feed(processor, map(batch_of, (loop.spans for loop in loops)))
        assert dropped(processor) == {}


def test_a_clock_that_is_set_back_decreases_no_sum() -> None:
    processor = make()
    loops = [Loop(now=at).steps(100).load() for at in (60_000, 20_000, 70_000)]
    made = feed(processor, (batch_of(loop.spans) for loop in loops))
    assert dropped(processor) == {"late": 401}
    times = [
        (point.time_unix_nano, attributes_of(point.attributes)["zernel.phase"], point.as_double)
        for metric in metrics_of(made, "zernel.phase.time")
        for point in metric.sum.data_points
    ]
    assert [time for time, _, _ in times] == sorted(time for time, _, _ in times)
    for phase in ("gpu_compute", "data_loading", "optimizer_step", "unknown"):
        sums = [value for _, of, value in times if of == phase]
        assert sums == sorted(sums)


def test_the_last_steps_of_a_live_host_without_data_are_closed() -> None:
    processor = make()
    list(processor.process(batch_of(Loop().steps(10).load().spans)))
    made = list(processor.tick(START + 60_000 * MS))
    assert last(made, "zernel.steps", zernel_step_kind="training") == 9


def test_the_wall_clock_does_not_advance_a_recording() -> None:
    processor = make()
    first, second = Loop().steps(10), Loop(now=321).steps(10).load()
    made = list(processor.process(batch_of(first.spans)))
    made += processor.tick(START + 365 * 86400 * 1000 * MS)
    made += feed(processor, [batch_of(second.spans)])
    assert last(made, "zernel.steps", zernel_step_kind="training") == 20
    assert dropped(processor) == {}


def replayed(pace: float, seconds_between: float, age: float) -> int:
    """The steps of a replay whose records arrive this far apart. `age` (s): how old the first data is."""
    clock = FakeClock(START + round(age * 1e9))
    processor = make_at(clock, pace=pace)
    spans = Loop().steps(300).load().spans
    made: list[Batch] = []
    for at in range(0, len(spans), 60):
        made += processor.process(batch_of(spans[at : at + 60]))
        for _ in range(round(seconds_between) or 1):
            clock.advance(seconds_between / (round(seconds_between) or 1))
            made += processor.tick(clock.time_ns())
    for _ in range(10):
        clock.advance(1)
        made += processor.tick(clock.time_ns())
    assert dropped(processor) == {}
    return int(last(made, "zernel.steps", zernel_step_kind="training"))  # the end of the replay ends no process


@pytest.mark.parametrize("age", [-3600.0, 0.0, 20.0, 1e6])
@pytest.mark.parametrize("pace", [0.05, 1.0, 5.0, 100.0])
def test_a_replay_of_any_age_and_pace_has_all_steps_before_the_collector_ends(pace: float, age: float) -> None:
    assert replayed(pace, 0.4 / pace, age) >= (299 if pace >= 1 else 200)  # the last load ends no step


def test_a_replay_without_a_pace_advances_by_its_data_alone() -> None:
    assert replayed(0.0, 30.0, 20.0) > 200
