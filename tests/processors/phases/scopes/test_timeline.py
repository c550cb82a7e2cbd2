"""Spans that are late, out of order or lost, and the limits of memory."""

import random

from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.scopes.timeline import ClosedStep, Timeline
from tests.processors.phases.training import MS, START, Loop, interval_of, span_of


def intervals(loop: Loop) -> list[ThreadInterval]:
    return [interval for span in loop.spans if (interval := interval_of(span))]


def closed(some: list[ThreadInterval], **limits: int) -> list[ClosedStep]:
    timeline = Timeline(MS // 2, limits.get("max_intervals", 10_000))
    for interval in some:
        timeline.add(interval)
    return list(timeline.end())


def advanced(loop: Loop) -> tuple[list[ClosedStep], Timeline]:
    """The steps that are closed while intervals arrive, of which a timeline keeps 50."""
    timeline = Timeline(MS // 2, 50)
    steps: list[ClosedStep] = []
    for interval in intervals(loop):
        assert timeline.add(interval) is None
        steps += timeline.advance(interval.end)
    return steps, timeline


@given(st.randoms(use_true_random=False))
def test_the_order_of_arrival_makes_no_difference(chance: random.Random) -> None:
    some = intervals(Loop().steps(8).load(0.03).wait(100).steps(3).load())
    mixed = some[:]
    chance.shuffle(mixed)
    assert closed(mixed) == closed(some)


def test_a_repeated_span_counts_once() -> None:
    some = intervals(Loop().steps(4).load())
    assert closed([interval for interval in some for _ in range(2)]) == closed(some)


def test_the_time_of_a_late_span_is_unknown() -> None:
    timeline = Timeline(MS // 2, 100)
    *some, late = sorted(
        intervals(Loop().steps(3).load()), key=lambda interval: (interval.kind == "backward", interval.end)
    )
    steps: list[ClosedStep] = []
    for interval in some:
        assert timeline.add(interval) is None
    steps += timeline.advance(late.end)
    assert timeline.add(late) == "late"
    steps += timeline.end()
    assert [step.step.lossy for step in steps] == [False, False, False, True]
    assert "clip" not in {segment.position for segment in steps[-1].attribution.segments}


def test_intervals_beyond_the_limit_are_dropped() -> None:
    timeline = Timeline(MS // 2, 10)
    refused = [timeline.add(interval) for interval in intervals(Loop().steps(4))]
    assert refused == [None] * 10 + ["max_spans"] * 6


def test_a_step_that_grows_without_end_is_cut() -> None:
    loop = Loop().load()
    for _ in range(500):
        loop.do("sync", 0.5, name="cudaStreamSynchronize").wait(0.5)
    steps, timeline = advanced(loop)
    assert steps[1].step.kind == "unfinished"
    assert len(steps[1].step.intervals) == 50
    assert len(steps) == 1 + 500 // 50, "it never loads again, and is cut again"
    steps += timeline.end()
    assert {step.step.kind for step in steps[1:]} == {"unfinished"}
    assert sum(step.step.end - step.step.start for step in steps) == 5 * MS + round(499.5 * MS)


def test_the_rest_of_a_step_that_was_cut_ends_at_its_next_load() -> None:
    loop = Loop().steps(2).load()
    for _ in range(70):
        loop.do("sync", 0.5, name="cudaStreamSynchronize").wait(0.5)
    loop.do("backward", 12).load().steps(3).load()
    steps, timeline = advanced(loop)
    steps += timeline.end()
    edges = [(step.step.start, step.step.end) for step in steps]
    assert [end for _, end in edges[:-1]] == [start for start, _ in edges[1:]]
    assert (edges[0][0], edges[-1][1]) == (START, START + round(loop.now * MS))
    kinds = [step.step.kind for step in steps]
    assert kinds.count("unfinished") == 2
    assert kinds.count("training") == 5
    rest = steps[kinds.index("unfinished") + 1].attribution.phase_ns()
    assert rest["gpu_compute"] - 12 * MS == rest["unknown"] - MS // 2 > 0


def test_a_scope_around_the_whole_epoch_does_not_delay_its_steps() -> None:
    loop = Loop().steps(4).load()
    epoch = span_of("user", 0, loop.now + 1, name="epoch")
    interval = interval_of(epoch)
    assert interval is not None
    assert [step.step.kind for step in closed([*intervals(loop), interval])].count("training") == 4


def test_invalid_spans_have_no_interval() -> None:
    backwards = span_of("backward", 5, 4)
    unknown = span_of("something", 1, 2)
    without = span_of("backward", 1, 2)
    del without.attributes[:]
    assert [interval_of(span) for span in (backwards, unknown, without)] == [None, None, None]


def test_collectives_of_other_threads_count_as_in_flight() -> None:
    loop = Loop().load().wait(10).do("backward", 12).do("sync", 4, name="cudaStreamSynchronize").load()
    flight = span_of("collective", 10, 30, name="all_reduce", thread=9, timing_source="host_upper_bound")
    interval = interval_of(flight)
    assert interval is not None
    step = closed([*intervals(loop), interval])[1]
    positions = [segment.position for segment in step.attribution.segments]
    assert positions == ["forward", "backward", "clip", "clip", "load"]
    activities = [segment.activity for segment in step.attribution.segments[2:4]]
    assert activities == ["collective", "gpu_wait"]
    assert step.collectives == [interval]
    assert step.attribution.overlap_ns == 17 * MS
    assert step.step.start == START + 5 * MS
